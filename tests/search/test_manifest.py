"""An index from a stranger: right checksums around wrong numbers."""

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from xxhash import xxh3_128_hexdigest

from keras_dml.search import Index, IndexFileError
from keras_dml.utils.files import checksum

COUNT, DIM = 50, 8

X = np.random.default_rng(0).normal(size=(COUNT, DIM))

TOKEN = "0123456789abcdef"


@functools.cache
def made(factory: str) -> Index:
    index = Index(X, {"n": list(range(COUNT))}, factory=factory)
    index.calibrate(X, np.arange(COUNT) // 5, num_resamples=5)
    return index


def saved(folder: Path, factory: str = "Flat") -> Path:
    # A copy is not of a folder yet.
    copy.deepcopy(made(factory)).save(folder)
    return folder


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes a manifest, and makes its checksum fit."""
    path = folder / "index.json"
    plain = json.loads(path.read_text())
    plain.pop("checksum")
    change(plain)
    plain["checksum"] = checksum(plain)
    path.write_text(json.dumps(plain))


def forge_file(folder: Path, part: str, content: bytes) -> None:
    """Replaces a file, and makes its checksum and size fit."""

    def enter(plain: dict[str, Any]) -> None:
        entry = plain["files"][part]
        (folder / "data" / entry["name"]).write_bytes(content)
        entry["bytes"] = len(content)
        entry["xxh3_128"] = xxh3_128_hexdigest(content)

    forge(folder, enter)


def test_unchanged_forged_index_loads(tmp_path) -> None:
    forge(saved(tmp_path), lambda plain: None)
    rows = (tmp_path / "data").glob("*-rows.json")
    forge_file(tmp_path, "rows.json", next(rows).read_bytes())
    assert len(Index.load(tmp_path)) == COUNT


NUMBERS = {
    "dim": [4, 0, -8, 10**9, "8", 8.5],
    "rows": [49, 51, 0, -1, 10**6, 10**12, None],
    "next_id": [3, 49, 51, 10**5, 10**7, 10**12, 2**63, -1, "50", 50.5, None],
    "hidden": [[60], [3], [-1], ["a"], 5, list(range(50, 5000)), [10**30]],
    "factory": ["HNSW8", "SQ8", "IVF4,Flat", "IVF1000000000,Flat", "PQ4x24",
                "Flatt", "", 5, "9" * 5000, "PCA99999999999,Flat"],
    "parameters": ["nprobe=4", "efSearch=99999999999", "x", 5],
    "threshold": [{}, {"value": 1}, 0.5, [None]],
    "recall": [{}, 1, {"at": {"a": 1}}],
    "model": [{}, "model"],
}  # fmt: skip


@pytest.mark.parametrize("key", NUMBERS)
def test_unfit_numbers_raise(key, tmp_path) -> None:
    saved(tmp_path)
    for value in NUMBERS[key]:
        forge(
            tmp_path, lambda x, value=value: x["content"].update({key: value})
        )
        with pytest.raises(IndexFileError, match="is damaged: .*Restore it"):
            Index.load(tmp_path)


NAMES = ["../../x", "/etc/passwd", "photo1.jpg", f"{TOKEN}-../rows.json",
         f"a/{TOKEN}-rows.json", "", f"{TOKEN}-rows.json\n", 5]  # fmt: skip


def test_unfit_manifests_raise(tmp_path) -> None:
    saved(tmp_path)
    text = (tmp_path / "index.json").read_text()
    values = [None, 7, {"a": {}}, ["a"]]
    changes = [
        *(lambda x, n=n: x["files"]["rows.json"].update(name=n) for n in NAMES),
        *(lambda x, v=v: x.update(content=v) for v in values),
        *(lambda x, v=v: x.update(files=v) for v in values),
        *(
            lambda x, p=p: x["files"].pop(p)
            for p in ("vectors.faiss", "rows.json")
        ),
    ]
    for change in changes:
        (tmp_path / "index.json").write_text(text)
        forge(tmp_path, change)
        with pytest.raises(IndexFileError, match="is damaged"):
            Index.load(tmp_path)


def test_deep_nesting_raises(tmp_path) -> None:
    deep = "[" * 10**5
    forge_file(saved(tmp_path), "rows.json", deep.encode())
    with pytest.raises(IndexFileError, match="rows.json' is damaged"):
        Index.load(tmp_path)
    (tmp_path / "index.json").write_text(deep)
    with pytest.raises(IndexFileError, match="not JSON"):
        Index.load(tmp_path)
    with pytest.raises(FileExistsError, match="not JSON"):
        Index(X).save(tmp_path, overwrite=True)


COLUMNS = ["x" * COUNT, [1, 2], [{}] * COUNT]

IDS = [list(range(1, COUNT + 1)), list(range(COUNT))[::-1], [0] * COUNT, [0],
       [0.5] * COUNT, [*range(COUNT - 1), 10**30], 7]  # fmt: skip

KEYS = ["p" * COUNT, ["p"], ["p"] * COUNT, [*range(COUNT - 1), "p"],
        [0.5] * COUNT, [10**30, *range(COUNT - 1)], None, {}]  # fmt: skip


def test_unfit_rows_raise(tmp_path) -> None:
    saved(tmp_path)
    for content in (
        [],
        {},
        *({"columns": {"n": values}} for values in COLUMNS),
        *({"columns": {}, "ids": ids} for ids in IDS),
        *({"columns": {}, "keys": keys} for keys in KEYS),
    ):
        forge_file(tmp_path, "rows.json", json.dumps(content).encode())
        with pytest.raises(IndexFileError, match="rows.json' is damaged"):
            Index.load(tmp_path)


KINDS = ("Flat", "IVF4,SQ8", "HNSW8", "IVF4,PQ2x4np,RFlat", "PCA4,Flat")


def written(x: np.ndarray, factory: str, ids: np.ndarray | None = None):
    index = faiss.index_factory(x.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    x = x.astype(np.float32)
    index.train(x)
    index.add(x) if ids is None else index.add_with_ids(x, ids)
    return faiss.serialize_index(index).tobytes()


@pytest.mark.parametrize("factory", KINDS)
def test_vectors_of_another_index_raise(factory, tmp_path) -> None:
    saved(tmp_path, factory)
    contents = [written(X[:40], factory), written(np.tile(X, 2), factory)]
    contents += [written(X, other) for other in KINDS if other != factory]
    for other in (*contents, b"IxFI" + bytes(40), b"x" * 1000):
        forge_file(tmp_path, "vectors.faiss", other)
        with pytest.raises(IndexFileError, match="vectors.faiss' is damaged"):
            Index.load(tmp_path)
    forge_file(tmp_path, "vectors.faiss", written(X, factory))
    assert len(Index.load(tmp_path).search(X, 3)) == COUNT


def test_vectors_with_ids_of_other_rows_raise(tmp_path) -> None:
    saved(tmp_path, "IVF4,SQ8")
    for ids in (np.arange(1, COUNT + 1), np.full(COUNT, 3), np.full(COUNT, -1)):
        forge_file(tmp_path, "vectors.faiss", written(X, "IVF4,SQ8", ids))
        with pytest.raises(IndexFileError, match="ids of other rows"):
            Index.load(tmp_path)


def test_direct_map_of_vectors_raises(tmp_path) -> None:
    saved(tmp_path, "IVF4,SQ8")
    index = faiss.deserialize_index(np.frombuffer(written(X, "IVF4,SQ8"), "u1"))
    index.make_direct_map()
    forge_file(
        tmp_path, "vectors.faiss", faiss.serialize_index(index).tobytes()
    )
    with pytest.raises(IndexFileError, match="vectors.faiss' is damaged"):
        Index.load(tmp_path)


def test_vectors_of_impossible_size_raise(tmp_path) -> None:
    content = bytearray(written(X, "Flat"))
    content[37:45] = np.array([2**37], "<i8").tobytes()
    forge_file(saved(tmp_path), "vectors.faiss", bytes(content))
    with pytest.raises(IndexFileError, match="vectors.faiss' is damaged"):
        Index.load(tmp_path)
