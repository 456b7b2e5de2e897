"""Reading folders of shards."""

import numpy as np
import pytest
from pyarrow import parquet

from keras_dml.embedding import EmbeddingShards, write_shards

COUNT, DIM = 25, 6


def embeddings(count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, DIM)).astype("float32")


def gallery(folder, **kwargs) -> EmbeddingShards:
    """Three shards of at most ten rows."""
    options = {
        "labels": np.arange(COUNT) % 4,
        "names": {0: "a", 1: "b", 2: "c", 3: "d"},
        "ids": [f"x/{row}" for row in range(COUNT)],
        "columns": {"price": np.arange(COUNT) / 2, "shop": ["é"] * COUNT},
        "rows_per_shard": 10,
    }
    return write_shards(embeddings(), folder, **(options | kwargs))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_shards_return_what_was_written(tmp_path, dtype):
    shards = gallery(tmp_path / "out", dtype=dtype)
    expected = embeddings().astype(dtype).astype("float32")
    assert (len(shards), shards.shape, shards.dim) == (25, (25, 6), 6)
    assert (shards.dtype, shards.num_shards) == (dtype, 3)
    assert shards.model is None
    parts = list(shards)
    assert [x.rows for x in parts] == [
        slice(0, 10), slice(10, 20), slice(20, 25),
    ]  # fmt: skip
    read = np.concatenate([x.embeddings for x in parts])
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(shards.array(), expected)
    assert shards.ids == [name for x in parts for name in x.ids]
    assert shards.ids[24] == "x/24"
    np.testing.assert_array_equal(shards.labels, np.arange(25) % 4)
    labels = np.concatenate([x.labels for x in parts])
    np.testing.assert_array_equal(labels, shards.labels)
    assert shards.names == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert shards.columns["row"] == list(range(25))
    assert shards.columns["name"][:5] == list("abcda")
    assert shards.columns["price"][3] == 1.5
    assert set(shards.columns) == {"row", "name", "price", "shop"}
    assert parts[2].columns["shop"] == ["é"] * 5
    table = parquet.read_table(tmp_path / "out/shard-00001.parquet")
    assert table["embedding"].type.list_size == DIM
    assert str(table["embedding"].type.value_type) in ("float", "halffloat")


def test_shards_without_labels_have_ids_and_rows(tmp_path):
    shards = write_shards(embeddings(), tmp_path / "out")
    (shard,) = shards
    assert shards.labels is shard.labels is None and shards.names == {}
    assert shards.ids[:2] == ["0", "1"]
    assert set(shards.columns) == set(shard.columns) == {"row"}


def test_label_sets_are_lists(tmp_path):
    labels = np.zeros((COUNT, 5), bool)
    labels[::2, 1] = labels[1::3, 4] = True
    names = ["a", "b", "c", "d", "e"]
    shards = gallery(tmp_path, labels=labels, names=names)
    np.testing.assert_array_equal(shards.labels, labels)
    assert shards.columns["name"][4] == "b, e"
    table = parquet.read_table(tmp_path / "shard-00000.parquet")
    assert table["label"].to_pylist()[:5] == [[1], [4], [1], [], [1, 4]]


def test_memory_map_is_written_once_and_whole(tmp_path, monkeypatch):
    shards = gallery(tmp_path / "out")

    def fill():
        yield embeddings(10)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shards, "embeddings", fill)
        with pytest.raises(OSError, match="600 bytes.*No space left.*`cache`"):
            shards.array(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    first = shards.array(tmp_path / "cache")
    monkeypatch.setattr(EmbeddingShards, "embeddings", None)
    again = EmbeddingShards(tmp_path / "out").array(tmp_path / "cache")
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0


def test_damaged_shard_is_named(tmp_path):
    shards = gallery(tmp_path / "a")
    path = tmp_path / "a" / "shard-00000.parquet"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(embeddings()[2].tobytes()) + 5] ^= 4
    gallery(tmp_path / "b")
    other = (tmp_path / "b" / path.name).read_bytes()
    fewer = parquet.read_table(path).slice(1)
    for content, message in (
        (flipped, ""),
        (whole[:-20], ""),
        (other, "another run"),
        (fewer, "it has 9 rows"),
    ):
        if content is fewer:
            parquet.write_table(fewer, path)
        else:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path.name}.*since.*{message}"):
            shards.array(tmp_path / "cache")
    path.unlink()
    with pytest.raises(ValueError, match="2 of 3 shards, without shard-00000"):
        EmbeddingShards(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match=path.name):
        shards.array(tmp_path / "cache")


def test_folder_without_a_manifest_raises(tmp_path):
    for folder in (tmp_path, "memory://test_shards/nothing"):
        with pytest.raises(FileNotFoundError, match="without _manifest.json"):
            EmbeddingShards(folder)
    gallery(tmp_path)
    manifest = tmp_path / "_manifest.json"
    text = manifest.read_text()
    for damaged, message in (
        (text.replace('"format_version": 1', '"format_version": 2'), "=2"),
        (text.replace('"dim": 6', '"dim": 7'), "its checksum is wrong"),
        (text[:-9], "not JSON"),
        ('{"format": "other"}', "something else"),
        ("[" * 10_000, "not JSON"),
    ):
        manifest.write_text(damaged)
        with pytest.raises(ValueError, match=f"_manifest.json.*{message}"):
            EmbeddingShards(tmp_path)
    with pytest.raises(ValueError, match="nowhere"):
        EmbeddingShards("nowhere://bucket/x")
