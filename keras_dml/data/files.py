"""Files that a data set lists, as a set of images."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from keras_dml.data.imageset import ImageSet

# Files that an error names.
_NAMED = 3


def listed_images(
    owner: object,
    root: Path,
    files: Sequence[str],
    labels: npt.ArrayLike,
    **fields: Any,
) -> ImageSet:
    """The images in listed files, which must be there.

    Args:
        owner: What lists them, for the error.
        root: Folder that their paths start from.
        files: Their paths; also their ids, unless others are given.
        labels: Their classes.
        **fields: Other arguments of the set.

    Raises:
        FileNotFoundError: If some are not there; it says how many and
            names a few.
    """
    paths = [root / file for file in files]
    names = defaultdict(set)
    for path in paths:
        names[path.parent].add(path.name)
    # Each folder is read once: to look for each file takes far longer.
    there = {folder: _names_in(folder) for folder in names}
    missing = [path for path in paths if path.name not in there[path.parent]]
    if missing:
        some = ", ".join(map(str, missing[:_NAMED]))
        raise FileNotFoundError(
            f"{len(missing):,} of the {len(paths):,} images that {owner} "
            f"lists are not there, such as {some}. Unpack the images again, "
            "or take the missing ones out of the list."
        )
    return ImageSet(paths, labels, **{"ids": files, **fields})


def _names_in(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
