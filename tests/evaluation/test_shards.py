"""Shards are measured like the arrays they were written from."""

import dataclasses

import numpy as np
import pytest

from keras_dml.embedding import EmbeddingShards, write_shards
from keras_dml.evaluation import calibrate, evaluate_embeddings, kmeans
from keras_dml.model.identity import ModelIdentity
from tests.evaluation.naive import assert_same

METRICS = ("recall@1", "map@r", "map", "nmi", "density", "fnmr@fmr=0.1")


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 12, 150)
    x = rng.standard_normal((12, 5))[labels] + rng.standard_normal((150, 5))
    return x.astype(np.float32), labels


def written(folder, x, labels=None, **options) -> EmbeddingShards:
    return write_shards(x, folder, labels, rows_per_shard=40, **options)


@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.slow), "float16"]
)
def test_shards_and_array_give_equal_results(data, tmp_path, dtype):
    x, labels = data
    shards = written(tmp_path / "a", x, labels, dtype=dtype)
    expected = evaluate_embeddings(x.astype(dtype), labels, metrics=METRICS)
    assert_same(evaluate_embeddings(shards, metrics=METRICS), expected)
    again = EmbeddingShards(tmp_path / "a")
    assert_same(evaluate_embeddings(again, metrics=METRICS), expected)
    threshold = calibrate(x.astype(dtype), labels, num_resamples=20)
    assert calibrate(shards, num_resamples=20) == threshold
    np.testing.assert_array_equal(
        kmeans(shards, 4, sample=60), kmeans(x.astype(dtype), 4, sample=60)
    )


def test_classes_take_names_from_shards(data, tmp_path):
    x, labels = data
    names = {number: f"class {number}" for number in range(12)}
    shards = written(tmp_path / "a", x, labels, names=names)
    results = evaluate_embeddings(shards, metrics="map@r")
    assert set(results.per_class("map@r")) == set(names.values())
    # Not where labels are others.
    results = evaluate_embeddings(shards, labels + 100, metrics="map@r")
    assert set(results.per_class("map@r")) == set(range(100, 112))


def test_gallery_may_be_shards(data, tmp_path):
    x, labels = data
    gallery = written(tmp_path / "g", x[50:], labels[50:])
    queries = written(tmp_path / "q", x[:50], labels[:50])
    expected = evaluate_embeddings(
        x[:50],
        labels[:50],
        gallery=x[50:],
        gallery_labels=labels[50:],
        metrics=METRICS,
    )
    for queries_or_arrays in ((queries,), (x[:50], labels[:50])):
        results = evaluate_embeddings(
            *queries_or_arrays, gallery=gallery, metrics=METRICS
        )
        assert_same(results, expected)


def test_shards_without_labels_raise(data, tmp_path):
    shards = written(tmp_path / "a", data[0])
    with pytest.raises(ValueError, match="`labels` of evaluate_embeddings"):
        evaluate_embeddings(shards)
    with pytest.raises(ValueError, match="`labels` of calibrate must"):
        calibrate(shards)
    with pytest.raises(ValueError, match="`labels` of calibrate must"):
        calibrate(data[0])
    with pytest.raises(ValueError, match="`gallery_labels` of evaluate_emb"):
        evaluate_embeddings(*data, gallery=shards)


def test_gallery_of_another_model_raises(data, tmp_path):
    x, labels = data
    shards = [written(tmp_path / name, x, labels) for name in "ab"]
    identity = ModelIdentity("1" * 64, (8, 8, 3), None, "none", ((1.0,),))
    shards[0].model = identity
    shards[1].model = dataclasses.replace(identity, weights="2" * 64)
    with pytest.raises(
        ValueError, match="different models .* different weights: 222"
    ):
        evaluate_embeddings(shards[0], gallery=shards[1])
    evaluate_embeddings(shards[0], gallery=shards[0])


def test_missing_or_changed_shard_is_named(data, tmp_path):
    # Of no other test: what was mapped from these rows is still there.
    shards = written(tmp_path / "a", 3 * data[0], data[1])
    second = sorted((tmp_path / "a").glob("*.parquet"))[1]
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(FileNotFoundError, match=second.name):
        evaluate_embeddings(shards, labels=data[1])
    other = written(tmp_path / "b", data[0] + 1, data[1])
    theirs = sorted((tmp_path / "b").glob("*.parquet"))[1]
    second.write_bytes(theirs.read_bytes())
    with pytest.raises(ValueError, match=f"{second.name} .* another run"):
        evaluate_embeddings(shards, labels=data[1])
    second.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=second.name):
        calibrate(shards, labels=data[1])
    assert evaluate_embeddings(other)
