"""Archives of data sets: finding, reading and checking their files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from keras_dml.data.imageset import ImageSet
from keras_dml.utils.files import check_regular

Counts: TypeAlias = Mapping[str, int]
"""Contents of an archive, such as {"train images": 5864}."""


@dataclass(frozen=True)
class Layout:
    """Names of the folders and files in an unpacked archive."""

    folder: str  # Name of the folder that the archive unpacks to.
    entries: tuple[str, ...]  # Files and folders that must be in it.
    images: str = "."  # Folder that the paths in its lists are relative to.


@dataclass(frozen=True)
class Archive:
    """A data set that is published as an archive, and its possible layouts."""

    title: str
    layouts: tuple[Layout, ...]
    counts: Counts  # Classes and images in some or all of the sets.

    def closest(self, path: Path) -> tuple[Layout, Path, list[str]]:
        """The best matching layout, its folder, and its missing entries."""
        matches = [
            (x, folder, [y for y in x.entries if not (folder / y).exists()])
            for x in self.layouts
            for folder in (path, path / x.folder)
        ]
        return min(matches, key=lambda x: len(x[2]) / len(x[0].entries))

    def locate(
        self, path: str | os.PathLike[str], owner: str
    ) -> tuple[Path, Layout]:
        """Returns the archive's folder, at or below a path, and its layout."""
        root = Path(path).expanduser()
        layout, folder, missing = self.closest(root)
        if not missing:
            return folder, layout
        if root.is_dir():
            state = f"without {', '.join(missing)}"
            way_out = f"Use the unpacked folder {layout.folder}."
        else:
            kind = "is a file" if root.exists() else "does not exist"
            state = f"which {kind}"
            way_out = "Unpack the archive, and use its folder."
        raise FileNotFoundError(
            f"`path` of {owner} must be the folder of {self.title}, with "
            f"{', '.join(layout.entries)}. Received: "
            f"path={os.fspath(path)!r}, {state}. {way_out}"
        )

    def check_counts(
        self, folder: Path, expected: Counts | None, **sets: ImageSet
    ) -> None:
        """Raises `ValueError` if counts are unexpected, and lists them."""
        actual = {f"{name} classes": x.num_classes for name, x in sets.items()}
        actual |= {f"{name} images": len(x) for name, x in sets.items()}
        wrong = [
            f"{actual[name]:,} {name} (of {count:,})"
            for name, count in (expected or {}).items()
            if actual[name] != count
        ]
        if wrong:
            raise ValueError(
                f"The folder {folder} must contain all of {self.title}. "
                f"Received: {', '.join(wrong)}. Unpack the archive again, or "
                "use counts=None to accept the images that exist."
            )


def halves(
    images: ImageSet, counts: Counts | None
) -> tuple[ImageSet, ImageSet]:
    """Splits images into the first classes, for training, and the others.

    The first ones are `counts["train classes"]` or, without counts, half of the
    classes, rounded up.
    """
    last = images.classes[(images.num_classes - 1) // 2]
    if counts is not None:
        last = counts["train classes"]
    is_train = images.known_labels <= last
    return images.select(is_train), images.select(~is_train)


def read_list(file: Path, columns: int, skip: int = 0) -> list[list[str]]:
    """The columns of a text file, without its first `skip` lines."""
    check_regular(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines[skip:], skip + 1):
        row = line.split()
        if row and len(row) != columns:
            raise damage_error(
                f"Line {number} of {file} must have {columns} columns",
                repr(line),
            )
        if row:
            rows.append(row)
    if not rows:
        raise damage_error(
            f"{file} must list images", f"{len(lines)} lines and 0 images"
        )
    return [list(column) for column in zip(*rows, strict=True)]


def read_by_id(file: Path, columns: int, ids: Sequence[str]) -> list[list[str]]:
    """The columns after the first, which has ids, in the order of `ids`."""
    listed_ids, *value_lists = read_list(file, columns)
    if sorted(listed_ids) != sorted(ids):
        odd = sorted({*listed_ids} ^ {*ids})[:3]
        such_as = f", and ids in one list only, such as {odd}" if odd else ""
        raise damage_error(
            f"{file} must have one line for each of {len(ids)} images",
            f"{len(listed_ids)} lines{such_as}",
        )
    lines = {key: line for line, key in enumerate(listed_ids)}
    return [[column[lines[key]] for key in ids] for column in value_lists]


def as_integers(texts: Sequence[str], what: str, file: Path) -> list[int]:
    """Converts texts to integers; `ValueError` names the file if one is not."""
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise damage_error(
            f"Every {what} in {file} must be an integer", str(error)
        ) from None


def damage_error(rule: str, received: str) -> ValueError:
    return ValueError(
        f"{rule}. Received: {received}. Unpack the archive again."
    )
