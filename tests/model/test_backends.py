"""Features that work on JAX and PyTorch, one process for each."""

import importlib.util

import pytest

from tests.forks import run_on

pytestmark = [pytest.mark.slow, pytest.mark.peers]

SCRIPT = """
import sys

import keras
import numpy as np

import keras_dml as dml
from keras_dml.cli import main  # noqa: F401

backend, path = sys.argv[1:]
assert keras.backend.backend() == backend
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
labels = np.repeat(np.arange(4), 6)
x = rng.normal(size=(24, 5)).astype("float32")


class Proxies(keras.layers.Layer):
    '''A loss that owns weights, in a layer of the user's own.'''

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def build(self, shape):
        self.loss.build(self, shape[-1])

    def call(self, embeddings, labels):
        values = self.loss.per_example(labels, embeddings)
        self.add_loss(keras.ops.mean(values))
        return embeddings


# A loss in plain `compile`, trained on every backend.
plain = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
plain.compile(keras.optimizers.Adam(0.05), loss=dml.losses.ContrastiveLoss())
history = plain.fit(x, labels, batch_size=24, epochs=5, verbose=0).history
assert history["loss"][-1] < history["loss"][0]

# One that owns weights.
inputs, ids = keras.Input((5,)), keras.Input((), dtype="int32")
owner = Proxies(dml.losses.ProxyNCALoss(num_classes=4))
embedded = owner(keras.layers.Dense(3)(inputs), ids)
model = keras.Model([inputs, ids], embedded)
model.compile(keras.optimizers.Adam(0.05))
before = keras.ops.convert_to_numpy(owner.loss.proxies)
history = model.fit([x, labels.astype("int32")], batch_size=24, epochs=5,
                    verbose=0).history
assert history["loss"][-1] < history["loss"][0]
assert not np.allclose(before, keras.ops.convert_to_numpy(owner.loss.proxies))

# Layers.
grouping = dml.layers.AttentiveGrouping(4, 2)
parts = grouping(rng.normal(size=(3, 4, 4, 6)).astype("float32"))
pooled = dml.layers.FeaturePooling("gem")(
    rng.normal(size=(3, 4, 4, 6)).astype("float32")
)
assert pooled.shape == (3, 6)


def exported(model):
    '''A function of the model in the format of the backend.'''
    target = path.replace(".keras", ".pt2")
    if backend == "jax":
        import tensorflow as tf

        model.export(target, verbose=False)
        served = tf.saved_model.load(target)
        return lambda x: served.serve(x)
    import torch

    batch = {0: torch.export.Dim("batch")}
    model.export(target, format="torch", dynamic_shapes=batch, verbose=False)
    served = torch.export.load(target).module()
    return lambda x: served(torch.tensor(x)).detach()


# Every method embeds; what was saved elsewhere embeds alike.
pixels = rng.integers(0, 256, (24, 16, 16, 1)).astype("uint8")
loaded = keras.models.load_model(path)
with np.load(path.replace(".keras", ".npz")) as expected:
    found = loaded.predict(expected["x"], verbose=0)
    np.testing.assert_allclose(found, expected["y"], atol=1e-4)
    served = exported(loaded)(expected["x"])
    np.testing.assert_allclose(served, expected["y"], atol=1e-4)
examples = dml.data.ImageSet(pixels, labels)
backbone = dml.backbones.small_convnet((16, 16, 1), filters=(4, 8))
model = dml.methods.attentive_grouping(backbone, embedding_dim=8, num_groups=2)

# Evaluation and search.
results = dml.evaluation.evaluate(model, examples)
assert 0 <= results["recall@1"] <= 1
index = dml.search.Index.build(model, examples)
hits = index.search(pixels[:2], k=1)
assert hits.ids[:, 0].tolist() == [0, 1]

# Features of a frozen backbone.
backbone.trainable = False
features = dml.backbones.features(backbone, examples, batch_size=16)
(found,) = features.inputs(np.arange(24)).values()
expected = backbone.predict(pixels.astype("float32"), verbose=0)
np.testing.assert_allclose(found, expected, atol=1e-4)
backbone.trainable = True

# On PyTorch, training says what it needs.
for call in (lambda: model.compile("adam"), lambda: loaded.compile("adam")):
    if backend == "jax":
        call()
        continue
    try:
        call()
    except RuntimeError as error:
        assert "tensorflow and jax only" in str(error), error
        assert "KERAS_BACKEND=tensorflow" in str(error), error
        assert backend in str(error)
    else:
        raise AssertionError("compile went through")
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_model_embeds_on_every_backend(backend, tmp_path) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    import numpy as np

    from keras_dml import backbones, methods

    saved = methods.baseline(
        backbones.small_convnet((16, 16, 1), filters=(4, 8)), embedding_dim=4
    )
    saved.compile("adam")
    x = np.random.default_rng(0).uniform(0, 255, (6, 16, 16, 1))
    x = x.astype("float32")
    saved.train_on_batch(x, np.array([0, 0, 1, 1, 2, 2]))
    saved.save(tmp_path / "model.keras")
    np.savez(tmp_path / "model.npz", x=x, y=saved.predict(x, verbose=0))
    run_on(backend, "-c", SCRIPT, backend, str(tmp_path / "model.keras"))
