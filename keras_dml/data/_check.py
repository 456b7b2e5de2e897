"""Checks a folder or file as a data set: what it is, and what is missing."""

import os
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_dml.data._table import FORMATS, table
from keras_dml.data.contents import equal_contents
from keras_dml.data.folder import image_folder_splits
from keras_dml.data.imageset import ImageSet
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


_NAMED = 3
"""Number of copies that are named."""


def check(path: str | os.PathLike[str]) -> Findings:
    """Returns which data set is at a path, and what is missing.

    Archives of benchmarks are recognized by their lists, tables by their file
    extension. Any other folder is treated as an image folder, and all of its
    images are decoded. Files with equal contents are reported: within a class,
    in several classes, and in training as well as in the test.

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
        if (archive := entry.details["archive"]) is None:
            continue
        layout, _, missing = archive.closest(place)
        # Of an archive, a list is there: other folders have `images` as well.
        if any(Path(x).suffix for x in {*layout.entries} - {*missing}):
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
        problems += [*_lonely(splits), *_copies(splits)]
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


def _copies(splits: DataSplits) -> list[str]:
    """Images with equal files, and where they are."""
    sets = {"training": splits.trainval, "test": splits.test}
    places = [
        (name, label, path)
        for name, x in sets.items()
        if isinstance(x, ImageSet)
        for label, path in zip(x.known_labels, x.paths or (), strict=True)
    ]
    copies: dict[int, list[tuple[str, int, str]]] = defaultdict(list)
    numbers = equal_contents(*sets.values())
    for number, place in zip(numbers, places, strict=True):
        copies[number].append(place)
    groups = [x for x in copies.values() if len(x) > 1]
    within = [
        same
        for group in groups
        for label in {label for _, label, _ in group}
        if len(same := [x for x in group if x[1] == label]) > 1
    ]
    across = [x for x in groups if len({label for _, label, _ in x}) > 1]
    leaks = [x for x in groups if len({where for where, _, _ in x}) > 1]
    return [
        f"{what}: {sum(map(len, found))} ({_named(found)}). {why}"
        for what, found, why in (
            (
                "Images with exact copies in their class",
                within,
                "They find each other, which flatters metrics. Keep one of "
                "each.",
            ),
            (
                "Images with exact copies in other classes",
                across,
                "One of their labels must be wrong. Remove them, or merge the "
                "classes.",
            ),
            (
                "Images with exact copies both in training and in the test",
                leaks,
                "The test is not of unseen images. Remove them from training.",
            ),
        )
        if found
    ]


def _named(groups: list[list[tuple[str, int, str]]]) -> str:
    some = [
        " = ".join(called for _, _, called in group[:_NAMED])
        for group in groups[:_NAMED]
    ]
    return "; ".join([*some, *(["…"] if len(groups) > _NAMED else [])])
