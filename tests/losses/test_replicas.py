"""Two replicas that do not gather: the mean of what each half does alone.

With `gather="none"` losses on pairs compare within a replica: a batch of N on
two replicas is two batches of N/2, whose gradients are averaged. Memories hold
what all replicas have seen.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.backbones import small_convnet

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
generator = np.random.default_rng(0)
images = generator.integers(0, 256, (16, 8, 8, 1)).astype("float32")
# Each half has its own mixture of classes.
labels = np.array([0, 0, 0, 1, 1, 2, 2, 3, 0, 1, 1, 2, 3, 3, 3, 2])


def trained(loss, images, labels, weights=None):
    backbone = small_convnet((8, 8, 1), filters=(4,))
    model = methods.baseline(
        backbone, embedding_dim=6, loss=loss, gather="none"
    )
    if weights is not None:
        model.set_weights(weights)
    before = [v.numpy() for v in model.trainable_variables]
    initial = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((images, {"label": labels}))
    history = model.fit(data.batch(len(labels)), epochs=1, verbose=0).history
    change = [
        after.numpy() - value
        for after, value in zip(model.trainable_variables, before)
    ]
    return change, history["loss"][0], initial


memory = losses.CrossBatchMemory("contrastive", 40)
with strategy.scope():
    backbone = small_convnet((8, 8, 1), filters=(4,))
    model = methods.baseline(
        backbone, embedding_dim=6, loss=memory, gather="none"
    )
    halves = (images[:8], images[8:])
    expected = [model(half, training=True).numpy() for half in halves]
    model.compile("sgd", jit_compile=False)
data = tf.data.Dataset.from_tensor_slices((images, {"label": labels}))
model.fit(data.batch(16), verbose=0)
np.savez(
    f"{sys.argv[2]}/memory.npz",
    labels=memory.queue.labels.numpy(),
    embeddings=memory.queue.embeddings.numpy(),
    count=memory.queue.count.numpy(),
    updates=memory.updates.numpy(),
    expected=np.concatenate(expected),
    each=labels,
)

for name, loss in json.loads(sys.argv[1]).items():
    with strategy.scope():
        both, value, weights = trained(loss, images, labels)
    halves = [
        trained(loss, images[half], labels[half], weights)
        for half in (slice(8), slice(8, 16))
    ]
    changes = zip(*(half[0] for half in halves))
    mean = [np.mean(pair, axis=0) for pair in changes]
    np.savez(
        f"{sys.argv[2]}/{name}.npz",
        value=value,
        values=[half[1] for half in halves],
        **{f"both/{i}": v for i, v in enumerate(both)},
        **{f"mean/{i}": v for i, v in enumerate(mean)},
        **{f"first/{i}": v for i, v in enumerate(halves[0][0])},
    )
"""

LOSSES = {
    "pairs": {"name": "contrastive", "reduction": "sum_over_pairs"},
    "triplets": {"name": "triplet", "mining": "hard"},
    "proxies": {"name": "proxy_anchor", "num_classes": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """What one process found for all losses."""
    folder = tmp_path_factory.mktemp("replicas")
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    subprocess.run(
        [*command, json.dumps(LOSSES), str(folder)],
        check=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        cwd=pathlib.Path(__file__).parents[2],
    )
    return folder


@pytest.mark.parametrize("loss", LOSSES)
def test_update_is_the_mean_of_the_replicas(folder, loss):
    with np.load(folder / f"{loss}.npz") as archive:
        results = dict(archive)
    assert results["value"] == pytest.approx(results["values"].mean(), rel=1e-4)
    names = [n.split("/")[1] for n in results if n.startswith("both/")]
    assert len(names) >= 4
    for name in names:
        both, mean, first = (
            results[f"{part}/{name}"] for part in ("both", "mean", "first")
        )
        scale = np.abs(mean).max()
        np.testing.assert_allclose(both, mean, atol=1e-4 * scale + 1e-8)
        if scale > 1e-6:  # else there is nothing to tell apart
            assert np.abs(both - first).max() > 1e-3 * scale


def test_a_memory_holds_the_batches_of_all_replicas(folder):
    with np.load(folder / "memory.npz") as archive:
        found = dict(archive)
    assert found["count"] == 16
    assert found["updates"] == 1
    np.testing.assert_array_equal(found["labels"][:16], found["each"])
    np.testing.assert_allclose(
        found["embeddings"][:16], found["expected"], atol=1e-5
    )
