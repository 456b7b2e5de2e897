"""Randomly changed index files load, or raise an error that names them."""

import random

import numpy as np
import pytest

from keras_dml.search import Index, IndexFileError
from tests.search.test_manifest import X, forge_file, saved


def changed(content: bytes, draw: random.Random) -> bytes:
    """Bits, bytes or lengths of a file, changed at random."""
    result, at = bytearray(content), draw.randrange(len(content))
    length = draw.randrange(1, 9)
    kind = draw.randrange(5)
    if kind == 0:
        result[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        result[at : at + length] = draw.randbytes(length)
    elif kind == 2:
        del result[at:]
    elif kind == 3:
        result[at:at] = draw.randbytes(length)
    else:
        # Numbers are in the heads.
        at = draw.randrange(min(200, len(content)))
        result[at : at + 4] = draw.choice([b"\xff" * 4, bytes(4), b"\0\0\1\0"])
    return bytes(result)


@pytest.mark.parametrize(
    "fits", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["Flat", "IVF4,SQ8", "HNSW8"])
def test_random_changes_of_files_raise_or_are_harmless(
    kind, fits, tmp_path
) -> None:
    """Tries wrong checksums and, as a stranger may forge them, right ones."""
    expected = Index.load(saved(tmp_path, kind)).search(X, 3).ids
    draw, outcomes = random.Random(1), set()
    files = [tmp_path / "index.json", *sorted((tmp_path / "data").iterdir())]
    whole = {path: path.read_bytes() for path in files}
    for _ in range(80 if fits else 40):
        path = draw.choice(files[1:] if fits else files)
        content = changed(whole[path], draw)
        if fits:
            forge_file(tmp_path, path.name.partition("-")[2], content)
        else:
            path.write_bytes(content)
        try:
            hits = Index.load(tmp_path).search(X, 3)
            outcomes.add("loads")
            assert fits or np.array_equal(hits.ids, expected)
        except IndexFileError as error:
            outcomes.add("refused")
            assert str(tmp_path) in str(error)
        for each, before in whole.items():
            each.write_bytes(before)
    assert "refused" in outcomes and ("loads" in outcomes or not fits)
