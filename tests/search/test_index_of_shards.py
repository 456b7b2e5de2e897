"""An index of shards equals that of the same embeddings."""

import numpy as np
import pytest

from keras_dml.embedding import write_shards
from keras_dml.search import Index

X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
LABELS = np.arange(2000) % 40
IDS = [f"image {i}" for i in range(2000)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("given") / "shards"
    columns = {"price": (LABELS / 4).tolist()}
    return write_shards(X, folder, LABELS, ids=IDS, columns=columns,
                        rows_per_shard=300, progress=False)  # fmt: skip


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_index_of_shards_equals_that_of_the_array(shards, metric) -> None:
    index = Index(shards, metric=metric)
    columns = {"label": LABELS, "row": range(2000), "price": LABELS / 4}
    plain = Index(X, columns, keys=IDS, metric=metric)
    assert index.keys == plain.keys
    assert index.columns == plain.columns
    assert np.array_equal(index.embeddings, plain.embeddings)
    hits, expected = (i.search(X[:20] + 0.1, 7) for i in (index, plain))
    assert np.array_equal(hits.ids, expected.ids)
    assert np.array_equal(hits.scores, expected.scores)
    assert Index(shards, keys="row").keys == list(range(2000))


def test_approximate_kinds_are_trained_on_a_sample(shards) -> None:
    index = Index(shards, factory="IVF16,Flat", parameters="nprobe=16")
    assert len(index) == 2000
    assert index.recall.at[10] == 1.0
    assert index.recall.rows == 2000
    assert index.search(X[700], 1).keys == [["image 700"]]


def test_unfit_arguments_for_shards_raise(shards, tmp_path) -> None:
    with pytest.raises(ValueError, match="not be given for EmbeddingShards"):
        Index(shards, {"more": [1]})
    with pytest.raises(ValueError, match="must be the name of a column"):
        Index(shards, keys=IDS)
    with pytest.raises(ValueError, match="Available: label, row, price"):
        Index(shards, keys="sku")
    with pytest.raises(ValueError, match="must be unique"):
        Index(shards, keys="label")
