"""Warnings about meaningless results: collapse, copies, shared galleries."""

import logging
from collections.abc import Iterator

import keras
import numpy as np
import pytest
from click.testing import CliRunner

from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.cli import main
from keras_dml.data import ArraySet, ImageSet, PairSet, from_dataset
from keras_dml.embedding import EmbeddingShards, embed_shards
from keras_dml.evaluation import Protocol, embed, evaluate, evaluate_embeddings
from keras_dml.model.warnings import warn_once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 8)).astype(np.float32)
Y = np.repeat(np.arange(20), 5)
METRICS = "recall@1", "map@r", "nmi", "density"


def as_list(results) -> list[float]:
    return [results[name] for name in METRICS]


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])


@pytest.fixture
def said(caplog) -> Iterator[pytest.LogCaptureFixture]:
    # TensorFlow warns of tracing, depending on the tests before.
    with caplog.filtering(logging.Filter("keras_dml")):
        caplog.set_level(logging.WARNING)
        yield caplog


@pytest.mark.parametrize("labels", [Y, Y.astype(str), Y.tolist()])
@pytest.mark.parametrize("gallery", [X, X[:], X.view()])
def test_gallery_of_the_queries_leaves_out_the_own_row(
    gallery: np.ndarray, labels, said
) -> None:
    """Recall@1 of random vectors was once 1.0."""
    alone = evaluate_embeddings(X, labels, metrics=METRICS)
    results = evaluate_embeddings(
        X, labels, gallery=gallery, gallery_labels=labels, metrics=METRICS
    )
    assert as_list(results) == as_list(alone)
    assert results["recall@1"] < 0.1
    assert (results.num_queries, results.gallery_size) == (100, 100)
    assert not said.messages


@pytest.mark.parametrize(
    "kind",
    ["set", pytest.param("files", marks=pytest.mark.slow), "dataset"],
)
def test_set_as_its_own_gallery_leaves_out_the_own_row(
    kind: str, model, tmp_path
) -> None:
    import tensorflow as tf

    metrics = "recall@1", "fnmr@fmr=0.1", "nmi"
    if kind == "dataset":
        data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(100, 0)
        results = evaluate(model, data, gallery=data, metrics=metrics)
        assert results["recall@1"] < 0.3
        return
    images = again = ArraySet(X, Y)
    if kind == "files":
        images, again = (image_files(tmp_path) for _ in range(2))
        layers = keras.layers.Flatten(), keras.layers.Dense(4)
        model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    alone = evaluate(model, images, metrics=metrics)
    results = evaluate(model, images, gallery=again, metrics=metrics)
    assert dict(results) == dict(alone)
    callback = RetrievalEvaluation(images, metrics=metrics, gallery=again)
    assert logs_of(callback, model) == {
        f"val_{name}": x for name, x in alone.items()
    }


def logs_of(callback: RetrievalEvaluation, model, epochs: int = 1) -> dict:
    """Logs of the last epoch."""
    callback.set_model(model)
    callback.set_params({"epochs": epochs})
    callback.on_train_begin()
    for epoch in range(epochs):
        callback.on_epoch_end(epoch, logs := {})
    return logs


def image_files(folder) -> ImageSet:
    from PIL import Image

    rng = np.random.default_rng(1)
    files = [folder / f"{i}.png" for i in range(12)]
    if not files[0].exists():
        for file in files:
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(file)
    return ImageSet(files, np.arange(12) // 3)


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("rounding", [0, 1e-7])
def test_copies_of_queries_in_the_gallery_are_reported(
    distance: str, rounding: float, said
) -> None:
    more = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    gallery = np.concatenate([more, X[::-1] + np.float32(rounding)])
    labels = np.concatenate([np.full(50, 20), Y[::-1]])
    options = {"distance": distance, "metrics": "recall@1"}
    evaluate_embeddings(X, Y, gallery=gallery, gallery_labels=labels, **options)
    (message,) = said.messages
    assert message.startswith("100 of 100 queries of evaluate_embeddings")
    assert "Protocol(queries=rows)" in message
    said.clear()
    both = np.concatenate([X, gallery]), np.concatenate([Y, labels])
    apart = Protocol(np.arange(len(X)), np.arange(len(X), len(both[0])))
    evaluate_embeddings(*both, protocol=apart, **options)
    assert "100 of 100 queries" in said.text
    said.clear()
    # Near vectors are no copies, and a few copies do not warn.
    for near in (
        gallery + np.float32(0.01),
        np.concatenate([more, more, gallery[50:54]]),
    ):
        evaluate_embeddings(
            X,
            Y,
            gallery=near,
            gallery_labels=labels[: len(near)],
            **options,
        )
    everything = np.concatenate([X, more])
    evaluate_embeddings(
        everything, labels[::-1], protocol=Protocol(np.arange(100)), **options
    )
    assert not said.messages


def mixed(copies: int) -> np.ndarray:
    """A gallery of 100 rows, some of which are rows of `X`."""
    new = np.random.default_rng(2).normal(size=(100 - copies, 8))
    return np.concatenate([new, X[100 - copies :]]).astype(np.float32)


def measured(kind: str, gallery: np.ndarray, model, folder) -> None:
    """Measures the rows of `X` in a gallery."""
    if kind == "array":
        evaluate_embeddings(X, Y, gallery=gallery, gallery_labels=Y)
    elif kind in ("file", "shards"):
        stored = []
        for name, x in (("x", X), ("y", gallery)):
            if kind == "file":
                np.save(folder / f"{name}.npy", x)
                stored.append(np.load(folder / f"{name}.npy", mmap_mode="r"))
            else:
                stored.append(shards_of(x, folder / name))
        evaluate_embeddings(
            stored[0], Y, gallery=stored[1], gallery_labels=Y, metrics="map@r"
        )
    elif kind == "command":
        folders = []
        for name, x in (("x", X), ("y", gallery)):
            shards_of(x, folder / name)
            folders.append(str(folder / name))
        command = ["evaluate", folders[0], "--gallery", folders[1]]
        assert CliRunner().invoke(main, command).exit_code == 0
    elif kind == "callback":
        images, gallery_set = ArraySet(X, Y), ArraySet(gallery, Y)
        logs_of(
            RetrievalEvaluation(images, gallery=gallery_set), model, epochs=3
        )
    elif kind == "dataset":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((gallery, Y)).batch(9)
        evaluate(model, (X, Y), gallery=data)
    else:
        evaluate(model, ArraySet(X, Y), gallery=(gallery, Y))


def shards_of(x: np.ndarray, folder) -> EmbeddingShards:
    identity = keras.Sequential([keras.Input((8,)), keras.layers.Identity()])
    return embed_shards(identity, ArraySet(x, Y), folder)


@pytest.mark.parametrize(
    "kind",
    ["array", "file", "shards", "command", "callback", "dataset", "model"],
)
def test_queries_in_the_gallery_are_reported_from_5_percent(
    kind: str, model, said, tmp_path
) -> None:
    for copies, count in ((4, 0), (5, 1), (50, 1)):
        (folder := tmp_path / str(copies)).mkdir()
        said.clear()
        measured(kind, mixed(copies), model, folder)
        messages = [x for x in said.messages if "stand in the gallery" in x]
        assert len(messages) == count, said.messages
        for message in messages:
            assert message.startswith(f"{copies} of 100 queries of evaluate")
            assert f"({copies}.0 %)" in message


def some_points(count: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(0).normal(size=(20, dim))
    noise = 1e-7 * rng.normal(size=(count, dim))
    return points[rng.integers(20, size=count)] + noise


@pytest.mark.parametrize(
    ("queries", "gallery", "share"),
    [
        # Classes that a model maps to a point each, and dead embeddings.
        (some_points(400, 16, 1), some_points(900, 16, 2), 0),
        (np.outer(np.arange(400) % 2, X[0]), np.outer(np.arange(9), X[0]), 0),
        (
            np.sign(RNG.normal(size=(400, 8))),
            np.sign(RNG.normal(size=(900, 8))),
            0,
        ),
        # Circles: of many directions, some are equal.
        (RNG.normal(size=(400, 2)), RNG.normal(size=(50000, 2)), 0),
        # Norms of any size, far from the origin, and rows that repeat.
        (1e30 * X, 1e30 * mixed(20), 20),
        (1e-30 * X, 1e-30 * mixed(20), 20),
        (1000 + X, 1000 + mixed(20), 20),
        (X, np.repeat(mixed(20), 50, axis=0), 20),
    ],
)
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_equal_embeddings_of_different_examples_are_not_reported(
    queries: np.ndarray, gallery: np.ndarray, share: int, distance: str, said
) -> None:
    evaluate_embeddings(
        queries.astype(np.float32),
        np.arange(len(queries)) % 50,
        gallery=gallery.astype(np.float32),
        gallery_labels=np.arange(len(gallery)) % 50,
        distance=distance,
        metrics="recall@1",
    )
    assert len(said.messages) == bool(share), said.messages
    assert f"({share}.0 %)" in said.text or not share


def test_repeated_rows_of_one_set_are_not_queries_in_the_gallery(said) -> None:
    twice, labels = np.concatenate([X, X]), np.concatenate([Y, Y])
    evaluate_embeddings(twice, labels)
    for protocol in (Protocol(queries=np.arange(50)), "official"):
        evaluate_embeddings(X, Y, protocol=protocol)
    assert not said.messages
    apart = Protocol(np.arange(104), np.arange(100, 200))
    evaluate_embeddings(twice, labels, protocol=apart)
    assert said.messages[0].startswith("96 of 104 queries")


@pytest.mark.parametrize("are_sets", [False, True])
def test_excluded_copies_are_not_reported(are_sets: bool, said) -> None:
    """Copies by the own camera and of the own class are excluded."""
    noise = np.random.default_rng(1).normal(size=X.shape)
    gallery = np.concatenate([X[::-1], X + noise])
    cameras = np.repeat(["a", "b"], 100)
    query_labels, labels = Y, np.concatenate([Y[::-1], Y])
    if are_sets:
        query_labels, labels = (
            np.eye(20, dtype=int)[query_labels],
            np.eye(20, dtype=int)[labels],
        )
    evaluate_embeddings(
        X,
        query_labels,
        gallery=gallery,
        gallery_labels=labels,
        exclude=(cameras[:100], cameras),
        metrics="recall@1",
    )
    assert not said.messages


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (np.zeros((20, 4)), "zero"),
        (np.ones((20, 4)), "equal"),
        (np.tile(X[0], (20, 1)) * (1 + 1e-6 * X[:20, :1]), "equal"),
        (np.outer(np.arange(1, 21), X[0]), "equal"),
    ],
)
def test_collapse_is_reported(x: np.ndarray, kind: str, said) -> None:
    y = np.repeat(np.arange(4), 5)
    evaluate_embeddings(x, y)
    (message,) = said.messages
    assert f"All 20 embeddings measured by evaluate_embeddings are {kind}," in (
        message
    )
    said.clear()
    x = x.copy()
    x[-1] = -X[1, :1]
    evaluate_embeddings(x, y, distance="euclidean")
    assert not said.messages


def test_collapsed_model_is_reported_once_in_training(model, said) -> None:
    dead = keras.models.clone_model(model)
    dead.set_weights([np.zeros_like(x) for x in model.get_weights()])
    callback = RetrievalEvaluation(ArraySet(X, Y))
    logs_of(callback, dead, epochs=3)
    assert ["are zero" in x for x in said.messages] == [True]
    evaluate(dead, ArraySet(X, Y))
    assert len(said.messages) == 2


@pytest.mark.parametrize("kind", [int, str])
def test_label_minus_one_is_reported(kind: type, said) -> None:
    y = np.where(Y < 3, -1, Y)
    results = evaluate_embeddings(X, y.astype(kind), metrics="recall@1")
    (message,) = said.messages
    assert message.startswith("15 examples measured by evaluate_embeddings")
    assert results.num_queries == 100
    said.clear()
    # Distractors in the gallery alone, and ids that are negative anyway.
    evaluate_embeddings(
        X[:50], Y[:50], gallery=-X, gallery_labels=np.where(Y > 15, -1, Y)
    )
    evaluate_embeddings(X, Y - 20)
    assert not said.messages


def test_groups_may_be_names_or_unknown() -> None:
    cameras = np.array(["front", "back", "side", "top"])[np.arange(100) % 4]
    numbers = np.unique(cameras, return_inverse=True)[1]
    expected = evaluate_embeddings(X, Y, exclude=numbers, metrics="map@r")
    for groups in (cameras, cameras.tolist(), cameras.astype(object)):
        results = evaluate_embeddings(X, Y, exclude=groups, metrics="map@r")
        assert dict(results) == dict(expected)
    # Unknown ones exclude nothing, not even each other.
    unknown = [None] * 100
    alone = evaluate_embeddings(X, Y, metrics="map@r")
    mixed_groups = [*range(-1000, -930), *([None] * 30)]
    for groups in (
        unknown,
        [-1] * 100,
        mixed_groups,
        [*map(str, mixed_groups[:70]), *mixed_groups[70:]],
    ):
        results = evaluate_embeddings(X, Y, exclude=groups, metrics="map@r")
        assert dict(results) == dict(alone)
    halves = X[:50], Y[:50]
    gallery = {"gallery": X[1:], "gallery_labels": Y[1:], "metrics": "map@r"}
    mixed = np.where(numbers == 0, None, cameras)
    results = evaluate_embeddings(
        *halves, exclude=(mixed[:50].tolist(), mixed[1:].tolist()), **gallery
    )
    ids = np.where(numbers == 0, 1000 + np.arange(100), numbers)
    theirs = np.where(numbers == 0, 2000 + np.arange(100), numbers)
    other = evaluate_embeddings(
        *halves, exclude=(ids[:50], theirs[1:]), **gallery
    )
    assert dict(results) == dict(other)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int):
        rows = slice(number * 32, number * 32 + 32)
        return X[rows], Y[rows], np.ones(len(Y[rows]))


def test_pydataset_is_accepted(model) -> None:
    batches = Batches()
    expected = dict(evaluate(model, ArraySet(X, Y)))
    assert dict(evaluate(model, batches)) == pytest.approx(expected)
    assert dict(evaluate(model, (X, Y), gallery=batches, metrics="map@r"))
    np.testing.assert_allclose(
        embed(model, batches), embed(model, ArraySet(X)), rtol=1e-5
    )
    callback = RetrievalEvaluation(batches, metrics="recall@1")
    logs = logs_of(callback, model)
    assert logs["val_recall@1"] == pytest.approx(expected["recall@1"])
    assert np.array_equal(from_dataset(batches).inputs(...), X)


def test_unfit_examples_raise(model) -> None:
    pairs = PairSet(ArraySet(X), [[0, 1], [0, 2]])
    with pytest.raises(ValueError, match=r"not relations.*`examples`"):
        evaluate(model, pairs)
    with pytest.raises(ValueError, match=r"`images` of RetrievalEvaluation"):
        RetrievalEvaluation(pairs)

    class Endless(keras.utils.PyDataset):
        def __getitem__(self, number: int):
            return X, Y

    with pytest.raises(ValueError, match="must be finite and not empty"):
        evaluate(model, Endless())


def test_outer_scope_of_messages_covers_inner_calls(model, said) -> None:
    """A run measures before, while and after it trains."""
    images = ArraySet(X[:10], np.zeros(10, int))
    with warn_once(set()):
        for _ in range(2):
            evaluation = RetrievalEvaluation(images, metrics="recall@1")
            evaluation.set_model(model)
            evaluation.set_params({"epochs": 1})
            evaluation.on_epoch_end(0, {})
            evaluate(model, images, metrics="recall@1")
    of_one_class = [x for x in said.messages if "are of one class" in x]
    assert len(of_one_class) == 1
    evaluate(model, images, metrics="recall@1")
    assert "are of one class" in said.messages[-1]
