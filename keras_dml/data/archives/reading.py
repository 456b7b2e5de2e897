"""Archives of data sets: their files, found and read."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits


@dataclass(frozen=True)
class Layout:
    """What an archive's folder holds.

    Attributes:
        title: Name of the data set.
        folder: Name of the folder that the archive unpacks to.
        entries: Files and folders that must be in it.
        images: Folder that the paths in its lists start from.
    """

    title: str
    folder: str
    entries: tuple[str, ...]
    images: str = "."

    def missing_in(self, folder: Path) -> list[str]:
        """The entries that a folder does not have."""
        return [x for x in self.entries if not (folder / x).exists()]

    def nearest(self, path: Path) -> tuple[Path, list[str]]:
        """The folder that this is most likely about, and what it lacks.

        Either the folder itself or, if that has more of the entries, the
        one of the archive's name inside of it.
        """
        folders = (path, path / self.folder)
        found = [(folder, self.missing_in(folder)) for folder in folders]
        return min(found, key=lambda x: len(x[1]))


def closest(
    path: Path, layouts: Sequence[Layout]
) -> tuple[Layout, Path, list[str]]:
    """The layout that a folder has most of, that folder, what it lacks."""
    found = [(layout, *layout.nearest(path)) for layout in layouts]
    return min(found, key=lambda x: len(x[2]) / len(x[0].entries))


def locate(
    path: str | os.PathLike[str], layouts: Sequence[Layout], owner: str
) -> tuple[Path, Path]:
    """Finds an archive's folder.

    Args:
        path: The folder, or the one that it is in.
        layouts: The layouts that it may have.
        owner: The loader, for the error.

    Returns:
        The folder, and the one that the paths in its lists start from.

    Raises:
        FileNotFoundError: If there is no such folder, or entries are
            missing; they are named.
    """
    root = Path(path).expanduser()
    layout, folder, missing = closest(root, layouts)
    if not missing:
        return folder, folder / layout.images
    if not root.is_dir():
        found = "which is a file" if root.exists() else "which is not there"
        way_out = "Unpack the archive, and give the folder."
    else:
        found = f"without {', '.join(missing)}"
        way_out = f"Give the folder {layout.folder} as it was unpacked."
    raise FileNotFoundError(
        f"`path` of {owner} must be the folder of {layout.title}, with "
        f"{', '.join(layout.entries)}. Received: path={os.fspath(path)!r}, "
        f"{found}. {way_out}"
    )


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


def halves(
    images: ImageSet,
    name: str,
    title: str,
    folder: Path,
    counts: Counts | None,
    validation: float,
    seed: int,
) -> DataSplits:
    """The split of CUB-200-2011 and Cars196 for metric learning.

    Args:
        images: All images; classes are numbered from 1.
        name: Name of the splits.
        title: Name of the data set, for errors.
        folder: Where it is.
        counts: What it should hold; with None the first half of the
            classes that are there is for training.
        validation: See `holdout_classes`.
        seed: See `holdout_classes`.

    Raises:
        ValueError: If a count differs.
    """
    last = images.classes[(images.num_classes - 1) // 2]
    if counts is not None:
        last = counts["train classes"]
    trainval = images.select(images.labels <= last)
    test = images.select(images.labels > last)
    check_counts(counts_of(train=trainval, test=test), counts, title, folder)
    return DataSplits.holding_out(trainval, test, name, validation, seed)
