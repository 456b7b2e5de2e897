"""Folders of shards whose bytes are others: refused, or nothing has changed."""

import random
from pathlib import Path

import numpy as np
import pytest

from keras_dml.embedding import EmbeddingShards
from tests.embedding.test_shards import COUNT, embeddings, gallery

MUTATIONS = 60


def flipped(content: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice([1, 1, 4])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def cut_off(content: bytearray, rng: random.Random) -> bytearray:
    return content[: rng.randrange(len(content))]


def with_zeros(content: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(content) - 8)
    content[start : start + 8] = bytes(8)
    return content


def longer(content: bytearray, rng: random.Random) -> bytearray:
    place = rng.randrange(len(content))
    content[place:place] = b"\xff"
    return content


def check_unchanged(folder: Path) -> None:
    shards = EmbeddingShards(folder)
    found = np.concatenate([x.embeddings for x in shards])
    np.testing.assert_array_equal(found, embeddings())
    assert shards.ids == [f"x/{row}" for row in range(COUNT)]
    np.testing.assert_array_equal(shards.labels, np.arange(COUNT) % 4)
    assert shards.names == dict(enumerate("abcd"))
    columns = shards.columns
    assert columns["row"] == list(range(COUNT))
    assert columns["name"] == ["abcd"[row % 4] for row in range(COUNT)]
    assert columns["price"] == [row / 2 for row in range(COUNT)]
    assert columns["shop"] == ["é"] * COUNT


@pytest.mark.parametrize("change", [flipped, cut_off, with_zeros, longer])
def test_bytes_that_are_others(tmp_path, change):
    gallery(tmp_path)
    files = {x: x.read_bytes() for x in sorted(tmp_path.glob("[!.]*"))}
    rng, refused = random.Random(change.__name__), 0
    for _ in range(MUTATIONS):
        path = rng.choice(list(files))
        path.write_bytes(change(bytearray(files[path]), rng))
        try:
            check_unchanged(tmp_path)
        except (ValueError, OSError) as error:
            assert path.name in str(error)
            refused += 1
        path.write_bytes(files[path])
    assert refused > MUTATIONS / 2


def test_shards_that_were_damaged_are_made_again(tmp_path):
    gallery(tmp_path)
    rng = random.Random(0)
    manifest = tmp_path / "_manifest.json"
    for path in sorted(tmp_path.glob("*.parquet")):
        content = path.read_bytes()
        path.write_bytes(cut_off(bytearray(content), rng))
        gallery(tmp_path)
        assert path.read_bytes() == content
        assert manifest.exists()
    check_unchanged(tmp_path)
