"""Addresses of databases: read, refused; what is not installed."""

import sys

import numpy as np
import pytest

from keras_dml.search import Index, open_index
from keras_dml.search.pushing import database_at

BAD = {
    "sqlite://a/b": "must be lancedb://FOLDER/TABLE",
    "lancedb://table": "must be lancedb://FOLDER/TABLE",
    "lancedb://a/b.c": "must end with the name of a table",
    "lancedb://a/": "must end with the name of a table",
    "milvus://root:secret@host:19530/a": "must not contain a password",
    "://": "must be lancedb",
    "a folder": "must be lancedb",
}


@pytest.mark.parametrize("uri", BAD)
def test_what_is_no_address(uri) -> None:
    with pytest.raises(ValueError, match=BAD[uri]) as caught:
        database_at(uri, "push")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [
        ("lancedb://a/b", "lancedb", "lancedb"),
        ("milvus://host:1/b", "pymilvus", "milvus"),
        ("milvus://a/b.db/c", "milvus_lite", "milvus"),
    ],
)
def test_an_extra_that_is_not_installed(
    uri, module, extra, monkeypatch
) -> None:
    if module == "milvus_lite":
        monkeypatch.setitem(sys.modules, "pymilvus", sys)
    monkeypatch.setitem(sys.modules, module, None)
    for work in (
        lambda: open_index(uri),
        lambda: Index(np.eye(3), store=uri),
        lambda: Index(np.eye(3)).push(uri),
    ):
        with pytest.raises(ImportError, match=rf"keras-dml\[{extra}\]"):
            work()


def test_a_folder_is_opened(tmp_path) -> None:
    Index(np.eye(3), {"n": [1, 2, 3]}).save(tmp_path / "i")
    index = open_index(tmp_path / "i")
    assert (index.store, index[2]) == (None, {"n": 3})
    assert index.types == {"n": {int}}
    index.close()
