"""Folders of images: root/class/image.jpg."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from keras_dml.data.decode import read_image
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.progress import track
from keras_dml.utils.types import Count, Fraction

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")

# Paths that a warning names.
_NAMED = 20


def image_folder(
    path: str | os.PathLike[str],
    unreadable: str = "skip",
    verify: bool = True,
) -> ImageSet:
    """The images of a folder that has a folder for every class.

    Classes and images are in the byte order of their names, and so are
    the labels, from 0. Images are files that end in .jpg, .jpeg, .png,
    .bmp or .gif, in lower or upper case. Hidden files, among them the
    `._*` of macOS, are passed over, and so are folders inside of a class.
    Folders without an image are no classes; a warning names them. What is
    called like an image and is no file (a folder, a pipe, a link that leads
    nowhere) cannot be decoded, and is not opened.

    Args:
        path: The folder.
        unreadable: What to do about files that cannot be decoded: "skip"
            them with a warning that names them, or "raise".
        verify: Whether to decode every file once, to find those. Without
            it a bad file is an error when it is needed; that it is a file
            is looked at nevertheless.

    Returns:
        A set of file paths, its classes named by their folders.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If there are no images in folders of classes, or, with
            `unreadable="raise"`, if a file cannot be decoded.
    """
    check_choice("image_folder", "unreadable", unreadable, ("skip", "raise"))
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(
            "`path` of image_folder must be a folder. Received: "
            f"path={os.fspath(path)!r}, which is "
            f"{'not one' if root.exists() else 'not there'}."
        )
    entries = _visible(root)
    stray = [x for x in _images(entries) if not x.is_dir()]
    folders = {x.name: _images(_visible(x)) for x in entries if x.is_dir()}
    if not any(folders.values()):
        raise ValueError(_no_images(root, stray))
    if stray:
        _warn(f"Images directly in {root}, which have no class,", stray)
    folders = _readable(folders, verify, raises=unreadable == "raise")
    empty = [root / name for name, files in folders.items() if not files]
    if empty:
        _warn("Folders without an image, which are no classes,", empty)
    classes = {name: files for name, files in folders.items() if files}
    if not classes:
        raise ValueError(_no_images(root, []))
    paths = [file for files in classes.values() for file in files]
    sizes = [len(files) for files in classes.values()]
    labels = np.repeat(np.arange(len(classes)), sizes)
    return ImageSet(paths, labels, names=list(classes))


@dataset(
    "image_folder",
    "images in path/class/image.jpg, classes split in byte order",
    leave_out=["verify"],
)
def image_folder_splits(
    path: str | os.PathLike[str],
    train_classes: Count | Fraction = 0.5,
    validation: Fraction = 0.2,
    seed: int = 0,
    unreadable: Literal["skip", "raise"] = "skip",
    verify: bool = True,
) -> DataSplits:
    """An image folder, split by class.

    Args:
        path: As for `image_folder`, and so are `unreadable` and `verify`.
        train_classes: How many classes, in byte order, or what fraction of
            them, are for training; the others are for testing.
        validation: Fraction of the training classes that is held out for
            choosing a model.
        seed: Which classes those are.

    Returns:
        The splits, named as the folder.

    Raises:
        FileNotFoundError: As for `image_folder`.
        ValueError: As for `image_folder`; or there are too few classes.
    """
    images = image_folder(path, unreadable, verify)
    name = Path(path).resolve().name
    return DataSplits.by_class(images, name, train_classes, validation, seed)


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, without hidden files, in byte order."""
    entries = [x for x in folder.iterdir() if not x.name.startswith(".")]
    return sorted(entries, key=lambda x: os.fsencode(x.name))


def _images(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.suffix.lower() in EXTENSIONS]


def _readable(
    folders: dict[str, list[Path]], verify: bool, raises: bool
) -> dict[str, list[Path]]:
    """The files of each folder that are files and, verified, are decoded."""
    files = [file for found in folders.values() for file in found]
    bad: dict[Path, ValueError] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = pool.map(_problem if verify else _not_a_file, files)
        checks = track(problems, len(files), "Checking images")
        for file, problem in zip(files, checks, strict=True):
            if problem and raises:
                pool.shutdown(wait=False, cancel_futures=True)
                raise problem
            if problem:
                bad[file] = problem
    if bad:
        _warn("Image files that cannot be decoded", list(bad))
    return {
        name: [file for file in found if file not in bad]
        for name, found in folders.items()
    }


def _problem(file: Path) -> ValueError | None:
    problem = _not_a_file(file)
    if problem is None:
        try:
            read_image(file)
        except ValueError as error:
            return error
    return problem


def _not_a_file(file: Path) -> ValueError | None:
    """To open a pipe would be to wait for ever."""
    if os.path.isfile(file):
        return None
    return ValueError(
        f"The image file {str(file)!r} cannot be decoded: it is a folder, a "
        "pipe or a link that leads nowhere. Remove it."
    )


def _warn(what: str, paths: list[Path]) -> None:
    named = ", ".join(str(path) for path in paths[:_NAMED])
    more = len(paths) - _NAMED
    rest = f" and {more} more" if more > 0 else ""
    warnings.warn(
        f"{what} are left out ({len(paths)}): {named}{rest}.", stacklevel=3
    )


def _no_images(root: Path, stray: list[Path]) -> str:
    found = "no image in any folder inside it"
    way_out = f"Put images into {root / 'name_of_class'}."
    if stray:
        found = f"images directly in it ({len(stray)}): {stray[0].name}, …"
        way_out = f"Give the folder above if {root.name!r} is a class."
    return (
        "`path` of image_folder must hold a folder of images for every "
        f"class, as in path/class/image.jpg. Received: path={str(root)!r}, "
        f"with {found}. {way_out}"
    )
