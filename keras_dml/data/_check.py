"""Checks a folder or file as a data set: what it is, and what is missing."""

import os
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_dml.data._table import FORMATS, table
from keras_dml.data.folder import image_folder_splits
from keras_dml.data.hashing import equal_contents
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


class _Image(NamedTuple):
    split: str
    label: int
    path: str


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
        sets = {"Training": splits.trainval, "Test": splits.test}
        for name, images in sets.items():
            counts = np.unique(images.known_labels, return_counts=True)[1]
            if lonely := int(np.sum(counts == 1)):
                problems.append(
                    f"{name} classes with a single image: {lonely}. They are "
                    "excluded from batches, and as queries they have no match."
                )
        problems += _copies(splits)
    return Findings(kind, loader.__name__, splits, tuple(problems))


def _copies(splits: DataSplits) -> list[str]:
    sets = {"training": splits.trainval, "test": splits.test}
    images = [
        _Image(name, label, path)
        for name, x in sets.items()
        if isinstance(x, ImageSet)
        for label, path in zip(x.known_labels, x.paths or (), strict=True)
    ]
    copies: dict[int, list[_Image]] = defaultdict(list)
    numbers = equal_contents(*sets.values())
    for number, image in zip(numbers, images, strict=True):
        copies[number].append(image)
    groups = [x for x in copies.values() if len(x) > 1]
    within = [
        same
        for group in groups
        for label in {x.label for x in group}
        if len(same := [x for x in group if x.label == label]) > 1
    ]
    across = [x for x in groups if len({image.label for image in x}) > 1]
    leaks = [x for x in groups if len({image.split for image in x}) > 1]
    kinds = {
        "in their class": (
            within,
            "They find each other, which flatters metrics. Keep one of each.",
        ),
        "in other classes": (
            across,
            "One of their labels must be wrong. Remove them, or merge the "
            "classes.",
        ),
        "both in training and in the test": (
            leaks,
            "The test is not of unseen images. Remove them from training.",
        ),
    }
    return [
        f"Images with exact copies {where}: {sum(map(len, groups))} "
        f"({_names(groups)}). {why}"
        for where, (groups, why) in kinds.items()
        if groups
    ]


def _names(groups: list[list[_Image]]) -> str:
    names = [
        " = ".join(image.path for image in group[:_NAMED])
        for group in groups[:_NAMED]
    ]
    return "; ".join([*names, *["…"] * (len(groups) > _NAMED)])
