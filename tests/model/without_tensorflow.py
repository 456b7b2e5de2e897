"""What works on JAX where TensorFlow cannot be imported.

`python -m tests.model.without_tensorflow FOLDER`, in any environment with
pytest; `FOLDER` gets the model that was trained and what it predicts.
"""

import importlib.abc
import sys
from pathlib import Path
from typing import Any


class Missing(importlib.abc.MetaPathFinder):
    """An import finder that hides TensorFlow."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] in ("tensorflow", "tensorflow_datasets"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from PIL import Image  # noqa: E402

import keras_dml as dml  # noqa: E402
from keras_dml.data import View  # noqa: E402
from keras_dml.evaluation import evaluate  # noqa: E402
from tests.model import jax_fit  # noqa: E402

SIZE, CLASSES, EACH = 16, 6, 8


def images(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Squares, (N, H, W, 1) uint8, whose place tells the class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), EACH)
    pixels = rng.integers(60, size=(len(labels), SIZE, SIZE, 1))
    for image, label in zip(pixels, labels, strict=True):
        row, column = divmod(int(label) * 5, SIZE - 5)
        image[row * 4 : row * 4 + 5, column : column + 5] += 180
    return pixels.astype("uint8"), labels


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    return dml.backbones.small_convnet((SIZE, SIZE, 1), filters=(8, 16))


def ensembles_learn() -> None:
    """From arrays, and from two views of an image, prepared by Grain."""
    pixels, labels = images()
    examples, held_out = (dml.data.ImageSet(*images(i)) for i in (0, 1))
    sampler = dml.data.ClassBalanced(labels, 6, 4, seed=0)
    for method, training_data, validation_data in (
        ("attentive_grouping", (pixels.astype("float32"), labels), images(2)),
        ("diva", (dml.data.grain_pipeline(examples, sampler, both),), None),
    ):
        model = dml.methods.METHODS[method].value(network(), embedding_dim=8)
        model.compile(keras.optimizers.Adam(1e-2))
        measured = dml.callbacks.RetrievalEvaluation(held_out)
        history = model.fit(
            *training_data, epochs=2, validation_data=validation_data,
            callbacks=[measured], verbose=0,
        ).history  # fmt: skip
        assert ("val_loss" in history) == (validation_data is not None)
        assert all(np.isfinite(values).all() for values in history.values())
        recall = evaluate(model, held_out)["recall@1"]
        assert recall == history["val_recall@1"][-1]


def both(image: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    moved = np.roll(image, rng.integers(-2, 3, 2), (0, 1))
    return {"image": image, "image2": moved}


def clusters_again() -> None:
    pixels, labels = images()
    model = dml.methods.divide_and_conquer(
        network(), embedding_dim=8, num_learners=2, loss="contrastive"
    )
    model.compile(keras.optimizers.Adam(1e-2))
    sampler = dml.data.ClusterSampler(labels, 3, num_learners=2)
    examples = dml.data.ImageSet(pixels, labels)
    clustering = dml.callbacks.Recluster(examples, sampler, every=1)
    batches = dml.data.grain_pipeline(examples, sampler)
    history = model.fit(batches, epochs=3, callbacks=[clustering], verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def reads_files_by_grain(folder: Path) -> None:
    """Training is also interrupted within an epoch and resumed."""
    pixels, labels = images()
    paths = [folder / f"{i}.png" for i in range(len(labels))]
    for i, (path, image) in enumerate(zip(paths, pixels, strict=True)):
        size = SIZE + i % 3  # They differ.
        Image.fromarray(image[..., 0]).resize((size, size)).save(path)
    examples = dml.data.ImageSet(paths, labels)

    def prepare(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        top, left = rng.integers(np.array(image.shape[:2]) - SIZE + 1)
        return image[top : top + SIZE, left : left + SIZE]

    def fitted(state: Path, stop: int = 0) -> tuple[Any, np.ndarray]:
        model = dml.methods.baseline(
            network(), embedding_dim=8, loss="contrastive"
        )
        model.compile(keras.optimizers.Adam(1e-2))
        sampler = dml.data.ClassBalanced(labels, 6, 4, seed=3)
        batches = dml.data.grain_pipeline(examples, sampler, prepare)
        resume = dml.callbacks.Resume(state, every=1)
        callbacks = [resume, jax_fit.Stop(stop)]
        history = model.fit(batches, epochs=3, callbacks=callbacks, verbose=0)
        return history.history["loss"], jax_fit.weights_of(model)

    whole = fitted(folder / "whole")
    with pytest.raises(KeyboardInterrupt):
        fitted(folder / "stopped", stop=3)
    resumed = fitted(folder / "stopped")
    assert resumed[0] == whole[0]
    assert np.array_equal(resumed[1], whole[1])


def takes_data_of_grain() -> None:
    """Grain's data are checked and weighted by class, like all data."""
    import grain

    x, y = jax_fit.data()
    batches = grain.MapDataset.source(range(2)).map(
        lambda i: (x[i::2], y[i::2])
    )
    model = jax_fit.model_of()
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(
        batches, epochs=2, class_weight=dict.fromkeys(range(8), 0.0), verbose=0
    ).history
    assert history["loss"] == [0.0, 0.0]
    wide = batches.map(lambda batch: (batch[0], batch[1].astype("float32")))
    with pytest.raises(ValueError, match="float32"):
        model.fit(wide, verbose=0)


def finds_neighbors(folder: Path) -> None:
    pixels, labels = images()
    model = dml.methods.baseline(network(), embedding_dim=8)
    examples = dml.data.ImageSet(pixels, labels)
    index = dml.search.Index.build(model, examples)
    index.save(folder / "index")
    loaded = dml.search.Index.load(folder / "index", model)
    for searched_index in (index, loaded):
        hits = searched_index.search(examples.select([3, 30]), k=2)
        assert [row[0].id for row in hits] == [3, 30], hits


def says_what_is_missing() -> None:
    pixels, labels = images()
    examples = dml.data.ImageSet(pixels, labels)
    sampler, view = dml.data.ClassBalanced(labels, 6, 4), View((8, 8), 1)
    for needs, name in (
        (lambda: dml.data.pipeline(examples, sampler, size=8), "pipeline"),
        (lambda: dml.data.eval_batches(examples, view), "eval_batches"),
        (lambda: dml.export, "keras_dml.export"),
    ):
        message = f"(?s)^{name} needs TensorFlow.*pip install tensorflow"
        with pytest.raises(ImportError, match=message):
            needs()


def main(folder: str) -> None:
    assert keras.backend.backend() == "jax"
    jax_fit.learns_from_arrays()
    jax_fit.weighs_examples_and_classes()
    ensembles_learn()
    clusters_again()
    reads_files_by_grain(Path(folder))
    takes_data_of_grain()
    finds_neighbors(Path(folder))
    says_what_is_missing()
    jax_fit.saves_what_it_trained(Path(folder))
    assert not [x for x in sys.modules if x.startswith("tensorflow")]


if __name__ == "__main__":
    main(sys.argv[1])
