"""Rows of an index as an Arrow table."""

import numpy as np
import pytest

from keras_dml.search import Index

X = np.eye(4, dtype="float32")[:3]


def test_table_holds_keys_vectors_and_columns() -> None:
    columns = {"name": ["a", None, "c"], "key": [1.5, 2.5, 3.5]}
    index = Index(X, columns, keys=["x", "y", "z"])
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
    index = Index(X)
    index.remove([0])
    assert index.table()["key"].to_pylist() == [1, 2]


def test_mixed_types_in_a_column_raise() -> None:
    index = Index(X, {"size": [1, "large", 2]})
    with pytest.raises(ValueError, match="one type.*column 'size'"):
        index.table()
