"""Reading the lists of archives, and checking what they hold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from keras_dml.data.imageset import ImageSet

Counts: TypeAlias = Mapping[str, int]
"""What an archive holds, such as {"train images": 5864}."""


def read_list(file: Path, columns: int, skip: int = 0) -> list[list[str]]:
    """The columns of a text file, separated by any number of spaces.

    Args:
        file: The file.
        columns: How many there are in every line.
        skip: Lines at the start to pass over.

    Returns:
        For each column its texts, in the order of the lines; empty lines
        are passed over.

    Raises:
        ValueError: If a line has another number of columns, or there are
            none; it is named.
    """
    rows = []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[skip:], skip + 1):
        row = line.split()
        if row and len(row) != columns:
            raise ValueError(
                f"Line {number} of {file} must have {columns} columns. "
                f"Received: {line!r}. Unpack the archive again."
            )
        if row:
            rows.append(row)
    if not rows:
        raise ValueError(
            f"{file} must list images. Received: {len(lines)} lines and no "
            "image. Unpack the archive again."
        )
    return [list(column) for column in zip(*rows, strict=True)]


def read_by_id(file: Path, columns: int, ids: Sequence[str]) -> list[list[str]]:
    """The columns after the first, an id, in the order of `ids`.

    Raises:
        ValueError: If the file's ids are not those.
    """
    own, *others = read_list(file, columns)
    lines = {key: line for line, key in enumerate(own)}
    if lines.keys() != set(ids) or len(own) != len(ids):
        odd = sorted(lines.keys() ^ set(ids))[:3]
        raise ValueError(
            f"{file} must have one line for each of {len(ids)} images. "
            f"Received: {len(own)} lines"
            + (f", and ids in one list only, such as {odd}" if odd else "")
            + ". Unpack the archive again."
        )
    return [[column[lines[key]] for key in ids] for column in others]


def as_integers(texts: Sequence[str], what: str, file: Path) -> list[int]:
    """Texts as integers.

    Raises:
        ValueError: If one is not; the file is named.
    """
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise ValueError(
            f"Every {what} in {file} must be an integer: {error}. Unpack "
            "the archive again."
        ) from None


def counts_of(**sets: ImageSet) -> dict[str, int]:
    """Classes and images of each set, as `Counts` name them."""
    found = {}
    for name, images in sets.items():
        found[f"{name} classes"] = images.num_classes
        found[f"{name} images"] = len(images)
    return found


def check_counts(
    found: Counts, expected: Counts | None, title: str, folder: Path
) -> None:
    """Checks that an archive holds what it should.

    Args:
        found: What it holds.
        expected: What it should, all of it or some; None to accept any.
        title: Name of the data set.
        folder: Where it is.

    Raises:
        ValueError: If a count differs; all that do are named.
    """
    wrong = [
        f"{found[name]:,} {name} (of {count:,})"
        for name, count in (expected or {}).items()
        if found[name] != count
    ]
    if wrong:
        raise ValueError(
            f"The folder {folder} must hold all of {title}. Received: "
            f"{', '.join(wrong)}. Unpack the archive again, or use "
            "counts=None to take what is there."
        )
