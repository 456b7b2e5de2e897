"""Hits and indexes as text and as tables."""

import json
import sys

import numpy as np
import pytest

from keras_dml.search import Index

X = np.eye(4)


def index(**options) -> Index:
    columns = {"name": ["a", "b", None, "d"], "score": [1, 2, 3, 4]}
    return Index(X, columns, keys=["p", "q", "r", "s"], **options)


def test_hits_convert_to_a_dict() -> None:
    hits = index().search([[1, 0.5, 0, 0], [0, 0, 0, 1]], 2, threshold=0.5)
    near, far = 1 / 1.25**0.5, 0.5 / 1.25**0.5
    table = hits.to_dict()
    assert table.pop("score") == pytest.approx([near, far, 1, 0])
    assert table == {
        "query": [0, 0, 1, 1],
        "rank": [1, 2, 1, 2],
        "key": ["p", "q", "s", "p"],
        "is_match": [True, False, True, False],
        "name": ["a", "b", "d", "a"],
        "row.score": [1, 2, 4, 1],
    }
    json.dumps(hits.to_dict())
    nothing = index().search([1, 0, 0, 0], where={"name": "z"})
    assert set(map(len, nothing.to_dict().values())) == {0}


def test_hits_convert_to_a_data_frame() -> None:
    pytest.importorskip("pandas")
    frame = index().search(X, 3).to_dataframe()
    assert frame.shape == (12, 7)
    assert frame.groupby("query")["key"].first().tolist() == list("pqrs")


def test_missing_pandas_names_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'pip install "keras-dml\[pandas\]"'):
        index().search(X).to_dataframe()


def test_index_and_hits_print_readably() -> None:
    gallery = index()
    text = "Index(4 × 4; Flat; cosine; own keys; columns name, score)"
    assert repr(gallery) == text
    assert repr(Index(X, metric="dot")) == "Index(4 × 4; Flat; dot)"
    hits = gallery.search(np.vstack([X, X]), 4)
    first = "  0: 'p' (1.0000), 'q' (0.0000), 'r' (0.0000), …"
    lines = repr(hits).splitlines()
    assert lines[:2] == ["Hits of 8 queries, 32 in all:", first]
    assert (len(lines), lines[-1]) == (7, "  …")
    nothing = gallery.search(X[0], where={"name": "z"})
    assert repr(nothing) == "Hits of 1 queries, 0 in all:\n  0: none"


def test_table_holds_keys_vectors_and_columns() -> None:
    columns = {"name": ["a", None, "c"], "key": [1.5, 2.5, 3.5]}
    index = Index(np.eye(4, dtype="float32")[:3], columns, keys=["x", "y", "z"])
    index.remove(["y"])
    table = index.table()
    assert table.column_names == ["key", "vector", "name", "row.key"]
    assert table.to_pylist()[1] == {
        "key": "z",
        "vector": [0, 0, 1, 0],
        "name": "c",
        "row.key": 3.5,
    }
    assert table.schema.field("vector").type.list_size == 4


def test_table_has_ids_where_rows_have_no_keys() -> None:
    index = Index(np.eye(4, dtype="float32")[:3])
    index.remove([0])
    assert index.table()["key"].to_pylist() == [1, 2]


def test_mixed_types_in_a_column_raise() -> None:
    index = Index(np.eye(4, dtype="float32")[:3], {"size": [1, "large", 2]})
    with pytest.raises(ValueError, match="one type.*column 'size'"):
        index.table()
