"""Folders of shards, as they are read."""

import pickle
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from keras_dml.embedding import EmbeddingShards, write_shards
from keras_dml.embedding.manifest import Manifest
from keras_dml.embedding.shard_file import read_head
from keras_dml.embedding.shards import ShardRows
from keras_dml.search import Index

COUNT, DIM = 25, 6


def embeddings(count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, DIM)).astype("float32")


def gallery(folder: Path, **kwargs) -> EmbeddingShards:
    """Three shards of ten rows and fewer."""
    options = {
        "labels": np.arange(COUNT) % 4,
        "names": {0: "a", 1: "b", 2: "c", 3: "d"},
        "ids": [f"x/{row}" for row in range(COUNT)],
        "columns": {"price": np.arange(COUNT) / 2, "shop": ["é"] * COUNT},
        "rows_per_shard": 10,
    }
    return write_shards(embeddings(), folder, **(options | kwargs))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_everything_comes_back(tmp_path, dtype):
    shards = gallery(tmp_path / "out", dtype=dtype)
    expected = embeddings().astype(dtype).astype("float32")
    assert (len(shards), shards.shape, shards.dim) == (25, (25, 6), 6)
    assert (shards.dtype, shards.num_shards, shards.bad) == (dtype, 3, ())
    assert shards.model is None
    parts = list(shards)
    assert [x.rows for x in parts] == [
        slice(0, 10), slice(10, 20), slice(20, 25),
    ]  # fmt: skip
    found = np.concatenate([x.embeddings for x in parts])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(shards.array(), expected)
    assert shards.ids == [name for x in parts for name in x.ids]
    assert shards.ids[24] == "x/24"
    np.testing.assert_array_equal(shards.labels, np.arange(25) % 4)
    np.testing.assert_array_equal(
        np.concatenate([x.labels for x in parts]), shards.labels
    )
    assert shards.names == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert shards.columns["row"] == list(range(25))
    assert shards.columns["name"][:5] == list("abcda")
    assert shards.columns["price"][3] == 1.5
    assert set(shards.columns) == {"row", "name", "price", "shop"}
    assert parts[2].columns["shop"] == ["é"] * 5


def test_eight_bits(tmp_path):
    x = embeddings()
    x[3] = 0
    x[4] *= 1e-30
    shards = write_shards(x, tmp_path / "out", rows_per_shard=10, dtype="int8")
    found = shards.array()
    for row, whole in zip(found, x, strict=True):
        step = max(abs(whole)) / 127
        assert max(abs(row - whole)) <= 0.5001 * step
    np.testing.assert_array_equal(found[3], 0)
    assert set(shards.columns) == {"row"}
    table = parquet.read_table(tmp_path / "out/shard-00001.parquet")
    steps = np.array(table["embedding"].to_pylist())
    assert set(abs(steps).max(axis=1)) == {127}
    scale = table["embedding_scale"].to_numpy()
    assert scale.dtype == np.float32
    np.testing.assert_allclose(scale, abs(x[10:20]).max(axis=1) / 127)
    np.testing.assert_array_equal(
        np.concatenate(list(shards.embeddings())), found
    )


def test_one_bit(tmp_path):
    x = np.random.default_rng(1).normal(size=(30, 20)).astype("float32")
    shards = write_shards(x, tmp_path / "out", dtype="binary")
    np.testing.assert_allclose(shards.array(), np.sign(x) / 20**0.5)
    table = parquet.read_table(tmp_path / "out/shard-00000.parquet")
    first, *_ = table["embedding"].to_pylist()[7]
    assert first == int("".join("01"[int(v > 0)] for v in x[7, :8]), base=2)
    assert table["embedding"].type.list_size == 3
    index = Index(shards.array(), precision="binary")
    np.testing.assert_array_equal(index.search(x, k=1).ids[:, 0], np.arange(30))


@pytest.mark.parametrize("dtype, share", [("int8", 0.25), ("binary", 1 / 32)])
def test_fewer_bits_take_less_room(tmp_path, dtype, share):
    x = np.random.default_rng(1).normal(size=(2000, 256)).astype("float32")
    write_shards(x, tmp_path / "out", dtype=dtype)
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert file.stat().st_size <= share * x.nbytes + 40 * len(x)


def test_examples_without_anything(tmp_path):
    shards = write_shards(embeddings(), tmp_path / "out")
    assert shards.labels is None and shards.names == {}
    assert shards.ids[:2] == ["0", "1"]
    assert set(shards.columns) == {"row"}
    (shard,) = shards
    assert shard.labels is None


def test_several_labels_each(tmp_path):
    labels = np.zeros((COUNT, 5), bool)
    labels[::2, 1] = labels[1::3, 4] = True
    names = ["a", "b", "c", "d", "e"]
    shards = gallery(tmp_path, labels=labels, names=names)
    np.testing.assert_array_equal(shards.labels, labels)
    assert shards.columns["name"][4] == "b, e"
    table = parquet.read_table(tmp_path / "shard-00000.parquet")
    assert table["label"].to_pylist()[:5] == [[1], [4], [1], [], [1, 4]]


def test_the_map_is_made_once(tmp_path, monkeypatch):
    shards = gallery(tmp_path / "out")
    first = shards.array(tmp_path / "cache")
    monkeypatch.setattr(EmbeddingShards, "embeddings", None)
    again = EmbeddingShards(tmp_path / "out").array(tmp_path / "cache")
    np.testing.assert_array_equal(first, again)
    assert [x.name for x in (tmp_path / "cache").iterdir()] == [
        f"embeddings-{shards.digest}.float32"
    ]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0


def test_the_map_is_whole_or_not_there(tmp_path, monkeypatch):
    shards = gallery(tmp_path / "out")

    def some():
        yield embeddings(10)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards, "embeddings", some)
    with pytest.raises(OSError, match="600 bytes.*No space left.*`cache`"):
        shards.array(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_pickle_of_the_rows_has_no_embeddings(tmp_path):
    shards = gallery(tmp_path / "out")
    pickled = pickle.dumps(ShardRows(shards))
    assert len(pickled) < 800
    again = pickle.loads(pickled)
    assert again.source.filename == shards.array().filename
    np.testing.assert_array_equal(again, embeddings())
    # As on another machine.
    Path(again.source.filename).unlink()
    np.testing.assert_array_equal(pickle.loads(pickled), embeddings())


def everything(shards: EmbeddingShards) -> tuple:
    found = np.concatenate([x.embeddings for x in shards]).tolist()
    labels = shards.labels.tolist()
    return found, shards.ids, labels, shards.names, shards.columns


def test_random_flips_are_refused_or_change_nothing(tmp_path):
    expected = everything(gallery(tmp_path))
    files = {x: x.read_bytes() for x in sorted(tmp_path.glob("[!.]*"))}
    rng, refused = random.Random(0), 0
    for _ in range(24):
        path = rng.choice(list(files))
        content = bytearray(files[path])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            assert everything(EmbeddingShards(tmp_path)) == expected
        except (ValueError, OSError) as error:
            assert path.name in str(error)
            refused += 1
        path.write_bytes(files[path])
    assert refused > 12


def test_a_bit_that_flipped(tmp_path):
    gallery(tmp_path)
    path = tmp_path / "shard-00000.parquet"
    content = bytearray(path.read_bytes())
    place = content.index(embeddings()[2].tobytes())
    content[place + 5] ^= 4
    path.write_bytes(content)
    shards = EmbeddingShards(tmp_path)
    with pytest.raises(ValueError, match="shard-00000.*since it was written"):
        shards.array(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ValueError, match="shard-00000.*since it was written"):
        EmbeddingShards(tmp_path, verify=True)


def test_a_shard_that_was_cut_off(tmp_path):
    gallery(tmp_path)
    path = tmp_path / "shard-00002.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="shard-00002.*truncated"):
        EmbeddingShards(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="shard-00002.*is missing"):
        EmbeddingShards(tmp_path)


def test_a_shard_of_another_run(tmp_path):
    gallery(tmp_path / "a")
    write_shards(
        2 * embeddings(), tmp_path / "b", rows_per_shard=10,
        labels=np.arange(COUNT) % 4, names=list("abcd"),
        ids=[f"x/{row}" for row in range(COUNT)],
        columns={"price": np.arange(COUNT) / 2, "shop": ["é"] * COUNT},
    )  # fmt: skip
    name = "shard-00001.parquet"
    (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    with pytest.raises(ValueError, match=f"{name}.*another run"):
        EmbeddingShards(tmp_path / "a", verify=True)


def test_shards_that_do_not_add_up(tmp_path):
    gallery(tmp_path)
    path = tmp_path / "_manifest.json"
    whole = Manifest.from_json(path.read_bytes(), "it")
    first, *others = whole.shards
    for shards in (others, [replace(first, rows=9), *others], [*others, first]):
        path.write_text(replace(whole, shards=tuple(shards)).to_json())
        with pytest.raises(ValueError, match="shards with .* for 25 examples"):
            EmbeddingShards(tmp_path)


@pytest.mark.parametrize("column", ["embedding", "label", "row", "id"])
@pytest.mark.parametrize("change", ["missing", "type"])
def test_columns_that_are_none_of_a_shard(tmp_path, column, change):
    gallery(tmp_path)
    path = tmp_path / "shard-00000.parquet"
    table = parquet.read_table(path)
    place = table.column_names.index(column)
    table = table.remove_column(place)
    if change == "type":
        table = table.add_column(place, column, [[0.5] * len(table)])
    parquet.write_table(table, path)
    with path.open("rb") as file, pytest.raises(ValueError, match="one of its"):
        read_head(file)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="without _manifest.json"):
        EmbeddingShards(tmp_path)
    with pytest.raises(FileNotFoundError, match="without _manifest.json"):
        EmbeddingShards("memory://test_shards/nothing")
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


def test_unknown_urls():
    with pytest.raises(ValueError, match="nowhere"):
        EmbeddingShards("nowhere://bucket/x")
