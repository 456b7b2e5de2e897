"""Index files with random changes: an error that names the file, or the same.

And the same with checksums that fit, as a stranger may write them.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from keras_dml.search import Index, IndexFileError
from tests.search.test_manifest import X, forge_file, saved

KINDS = ("Flat", "IVF4,SQ8", "HNSW8")


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


def check(folder: Path, before: Index, count: int, fits: bool) -> set[str]:
    """Changes files of an index so many times; says how it went."""
    draw, outcomes = random.Random(1), set()
    files = [folder / "index.json", *sorted((folder / "data").iterdir())]
    whole = {path: path.read_bytes() for path in files}
    for _ in range(count):
        path = draw.choice(files[1:] if fits else files)
        content = changed(whole[path], draw)
        if fits:
            forge_file(folder, path.name.partition("-")[2], content)
        else:
            path.write_bytes(content)
        try:
            found = Index.load(folder).search(X, 3)
            outcomes.add("loads")
        except IndexFileError as error:
            assert str(folder) in str(error)
            outcomes.add("refused")
        else:
            if not fits:
                np.testing.assert_array_equal(
                    found.ids, before.search(X, 3).ids
                )
        for path, content in whole.items():
            path.write_bytes(content)
    return outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_random_changes(kind: str, tmp_path: Path) -> None:
    before = Index.load(saved(tmp_path, kind))
    assert "refused" in check(tmp_path, before, 40, fits=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_changes_with_checksums_that_fit(
    kind: str, tmp_path: Path
) -> None:
    before = Index.load(saved(tmp_path, kind))
    assert check(tmp_path, before, 80, fits=True) == {"loads", "refused"}
