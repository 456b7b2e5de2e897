"""Checks a folder or file as a data set: what it is, and what is missing."""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from keras_dml.data._table import FORMATS, table
from keras_dml.data.copies import MAX_NAMES, Copies, find_copies
from keras_dml.data.folder import image_folder_splits
from keras_dml.data.splits import DATASETS, DataSplits


@dataclass(frozen=True)
class Findings:
    """A data set at a path, and its problems.

    Attributes:
        kind: What it is, in words.
        loader: Name of the function of `keras_dml.data` that loads it.
        splits: The splits that the function returns, or None if they cannot be
            loaded.
        problems: What is missing or wrong, each described in a sentence or
            more.
        copies: Groups of images that are the same, pixel by pixel or nearly.
    """

    kind: str
    loader: str
    splits: DataSplits | None
    problems: tuple[str, ...]
    copies: tuple[Copies, ...] = ()


def check(
    path: str | os.PathLike[str] | Callable[[], DataSplits],
) -> Findings:
    """Returns which data set is at a path, and what is missing.

    Archives of benchmarks are recognized by their lists, tables by their file
    extension. Any other folder is treated as an image folder, and all of its
    images are decoded. Copies are reported: within a class, in several
    classes, and in training as well as in the test. They are exact if their
    pixels are equal, in whatever format, and near if small gray pictures of
    them are, as for another size, brightness or quality, but not for a crop.

    Args:
        path: A folder or file; or a function that loads splits, such as
            `lambda: recipe.data.load(recipe.seed)` for those of a recipe.

    Raises:
        FileNotFoundError: If the path does not exist.
    """
    if callable(path):
        return _load("loaded by a function", path.__name__, path)
    location = Path(path).expanduser()
    if not location.exists():
        raise FileNotFoundError(
            f"`path` of check must be a folder or a table. Received: path="
            f"{os.fspath(path)!r}, which does not exist."
        )
    if location.suffix.lower() in FORMATS and location.is_file():
        return _load_from(location, "a table of images", table)
    for entry in DATASETS.values():
        if (archive := entry.details["archive"]) is None:
            continue
        layout, _, missing = archive.closest(location)
        # An archive has one of its lists; other folders have `images` as well.
        if any(Path(x).suffix for x in {*layout.entries} - {*missing}):
            title = f"the data set {archive.title}"
            return _load_from(location, title, entry.value)
    return _load_from(location, "a folder of images", image_folder_splits)


def _load_from(
    location: Path, kind: str, loader: Callable[..., DataSplits]
) -> Findings:
    return _load(kind, loader.__name__, partial(loader, location))


def _load(kind: str, name: str, loader: Callable[[], DataSplits]) -> Findings:
    splits = None
    copies: list[Copies] = []
    problems = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            splits = loader()
        except (ValueError, OSError, ImportError) as error:
            problems.append(str(error))
    problems += [str(x.message) for x in caught if x.category is UserWarning]
    if splits is not None:
        sets = {"Training": splits.trainval, "Test": splits.test}
        for role, images in sets.items():
            if images.has_label_sets:
                continue
            counts = np.unique(images.known_labels, return_counts=True)[1]
            if lonely := int(np.sum(counts == 1)):
                problems.append(
                    f"{role} classes with a single image: {lonely}. They are "
                    "excluded from batches, and as queries they have no match."
                )
        copies, errors = find_copies(splits)
        problems += [x for x in errors if x not in problems]
        for copy_kind in ("exact", "near"):
            groups = [x for x in copies if x.kind == copy_kind]
            problems += _describe(groups, copy_kind, splits.test.has_label_sets)
    return Findings(kind, name, splits, tuple(problems), tuple(copies))


def _describe(
    groups: Sequence[Copies], kind: str, has_label_sets: bool
) -> list[str]:
    within = [
        Copies(kind, same)
        for group in groups
        for label in {x.label for x in group.images}
        if len(same := tuple(x for x in group.images if x.label == label)) > 1
    ]
    across = [x for x in groups if len({y.label for y in x.images}) > 1]
    leaks = [
        x for x in groups if len({y.split == "test" for y in x.images}) > 1
    ]
    cases = {
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
    if has_label_sets:  # Images with the same labels do not form a class.
        del cases["in their class"], cases["in other classes"]
    look = "" if kind == "exact" else "Look at them. "
    return [
        f"Images with {kind} copies {where}: "
        f"{sum(len(x.images) for x in groups)} ({_names(groups)}). {look}{why}"
        for where, (groups, why) in cases.items()
        if groups
    ]


def _names(groups: Sequence[Copies]) -> str:
    names = [
        " = ".join(image.path for image in group.images[:MAX_NAMES])
        for group in groups[:MAX_NAMES]
    ]
    return "; ".join([*names, *["…"] * (len(groups) > MAX_NAMES)])
