"""Checks a folder or file as a data set: what it is, and what is missing."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_dml.data._table import FORMATS, table
from keras_dml.data.folder import image_folder_splits
from keras_dml.data.splits import DATASETS, DataSplits


@dataclass(frozen=True)
class Findings:
    """What was found at a path.

    Attributes:
        kind: What it is, in words.
        loader: Name of the function of `keras_dml.data` that loads it.
        splits: The splits that the function returns, or None if they cannot be
            loaded.
        problems: What is missing or wrong, each described in a sentence or
            more.
    """

    kind: str
    loader: str
    splits: DataSplits | None
    problems: tuple[str, ...]


def check(path: str | os.PathLike[str]) -> Findings:
    """Returns which data set is at a path, and what is missing.

    Archives of benchmarks are recognized by their lists, tables by their file
    extension. Any other folder is treated as an image folder, and all of its
    images are decoded.

    Args:
        path: A folder or file.

    Raises:
        FileNotFoundError: If the path does not exist.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise FileNotFoundError(
            f"`path` of check must be a folder or a table. Received: path="
            f"{os.fspath(path)!r}, which does not exist."
        )
    if place.suffix.lower() in FORMATS and place.is_file():
        return _load(place, "a table of images", table)
    for entry in DATASETS.values():
        archive = entry.details["archive"]
        # Of an archive, a list is there: other folders have `images` as well.
        if archive and any(Path(x).suffix for x in archive.present_in(place)):
            return _load(place, f"the data set {archive.title}", entry.value)
    return _load(place, "a folder of images", image_folder_splits)


def _load(
    place: Path, kind: str, loader: Callable[..., DataSplits]
) -> Findings:
    splits = None
    problems = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            splits = loader(place)
        except (ValueError, OSError, ImportError) as error:
            problems.append(str(error))
    problems += [str(x.message) for x in caught if x.category is UserWarning]
    if splits is not None:
        problems += _lonely(splits)
    return Findings(kind, loader.__name__, splits, tuple(problems))


def _lonely(splits: DataSplits) -> list[str]:
    """Number of classes without a positive pair."""
    sets = {"Training": splits.trainval, "Test": splits.test}
    counts = {
        name: int(np.sum(np.unique(x.known_labels, return_counts=True)[1] == 1))
        for name, x in sets.items()
    }
    return [
        f"{name} classes with a single image: {count}. They are excluded from "
        "batches, and as queries they have no match."
        for name, count in counts.items()
        if count
    ]
