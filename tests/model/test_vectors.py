"""Vectors from end to end: trained, watched, measured, indexed."""

import keras
import numpy as np
import pytest

import keras_dml as dml
from keras_dml.data import ArraySet


def clouds(first: int, count: int = 6, each: int = 8) -> ArraySet:
    """Classes that two of eight coordinates tell apart, amid much noise."""
    rng = np.random.default_rng(first)
    labels = np.repeat(np.arange(first, first + count), each)
    angle = 2.4 * labels
    x = rng.normal(0, 3, (len(labels), 8))
    x[:, 0], x[:, 1] = 2 * np.cos(angle), 2 * np.sin(angle)
    x[:, :2] += rng.normal(0, 0.1, (len(labels), 2))
    return ArraySet(
        x.astype("float32"),
        [f"class {label:02d}" for label in labels],
        ids=[f"vector {i}" for i in range(len(labels))],
    )


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, keras.callbacks.History]:
    keras.utils.set_random_seed(0)
    train, held_out = clouds(0, count=12), clouds(20)
    network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16)])
    model = dml.methods.baseline(
        network, embedding_dim=4, loss="multi_similarity"
    )
    model.compile(keras.optimizers.Adam(0.02))
    sampler = dml.data.ClassBalanced(train.labels, 8, 4, steps_per_epoch=20)
    history = model.fit(
        dml.data.pipeline(train, sampler),
        epochs=3,
        callbacks=[dml.callbacks.RetrievalEvaluation(held_out)],
        verbose=0,
    )
    return model, history


def test_training_helps(trained) -> None:
    model, history = trained
    held_out = clouds(20)
    raw = dml.evaluation.evaluate_embeddings(
        held_out.inputs(...), held_out.labels
    )
    measured = dml.evaluation.evaluate(model, held_out)
    assert measured["map@r"] > raw["map@r"] + 0.2
    assert history.history["val_map@r"][-1] == measured["map@r"]


def test_an_index_is_built_saved_and_searched_by_vectors(
    trained, tmp_path
) -> None:
    model, _ = trained
    gallery = clouds(20)
    index = dml.search.Index.build(model, gallery)
    index.add(ArraySet(clouds(40).inputs(...)))  # Without labels.
    assert index.row(3)["name"] == "class 20"
    assert index.row(3)["source"] == "vector 3"
    assert index.row(len(gallery))["name"] is None
    index.save(tmp_path / "index")
    again = dml.search.Index.load(tmp_path / "index")
    hits = again.search(gallery.select([5, 0]), k=1)
    assert hits.ids[:, 0].tolist() == [5, 0]
    other = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    with pytest.raises(ValueError, match="must be the one that computed"):
        dml.search.Index.load(tmp_path / "index", other)


@pytest.mark.slow
def test_clusters_are_found_among_vectors() -> None:
    train = clouds(0)
    network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16)])
    model = dml.methods.divide_and_conquer(
        network, embedding_dim=4, num_learners=2
    )
    model.compile("adam")
    sampler = dml.data.ClusterSampler(
        train.labels, 2, 2, num_learners=2, steps_per_epoch=2
    )
    recluster = dml.callbacks.Recluster(
        train, sampler, every=1, cluster_space="features"
    )
    model.fit(
        dml.data.pipeline(train, sampler),
        epochs=1,
        callbacks=[recluster],
        verbose=0,
    )
    assert sum(recluster.divisions[0].sizes) == len(train)


@pytest.mark.parametrize("callback", ["RetrievalEvaluation", "Recluster"])
def test_callbacks_say_at_once_what_they_cannot_use(callback) -> None:
    train = clouds(0)
    more = [dml.data.ClusterSampler(train.labels, 2)] * (callback[2] == "c")
    make = getattr(dml.callbacks, callback)
    for given in ("photographs", 3, None):
        with pytest.raises(ValueError, match=f"`images` of {callback} must be"):
            make(given, *more)
    with pytest.raises(ValueError, match=r"must be known|24 images|48"):
        make(ArraySet(train.inputs(range(24))), *more)
