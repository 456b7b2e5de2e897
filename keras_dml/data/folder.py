"""Folders of images: root/class/image.jpg."""

import functools
import importlib.util
import os
import warnings
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from keras_dml.data.bad_files import BadFiles, OnBadFile
from keras_dml.data.decode import read_image
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.data.validation import is_utf8
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.progress import printable, track
from keras_dml.utils.types import Count, Fraction, HeldOut

EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif",
    ".tiff",
)  # fmt: skip
"""File extensions that are always read as images."""

# Extensions that are read if a package is installed, and how to install it.
_OPTIONAL = {
    ".heic": 'pip install "keras-dml[heif]"',
    ".heif": 'pip install "keras-dml[heif]"',
    ".avif": 'pip install "pillow>=11.3"',
}

_MAX_NAMES = 20
"""Number of paths that a warning names for each reason."""

_FOLDERS = "folders inside class folders are not searched."

Skipped: TypeAlias = dict[str, list[Path]]
"""Skipped paths, by the reason."""


def image_folder(
    path: str | os.PathLike[str],
    unreadable: str = "skip",
    verify: bool = True,
    on_bad_file: OnBadFile = "raise",
) -> ImageSet:
    """The images of a folder with one subfolder per class.

    Classes and images are in the byte order of their names, and labels follow
    that order, from 0. Images are files that end in .jpg, .jpeg, .jpe, .jfif,
    .png, .bmp, .gif, .webp, .tif or .tiff, in lower or upper case; in .heic or
    .heif, if pillow-heif is installed; and in .avif, if Pillow can read it.
    A warning lists everything that is skipped, with the reason: files that
    cannot be decoded; other files, by type, with what is required to read
    them; folders inside a class; folders without an image, which are not
    classes. Hidden files and folders, such as the `._*` files of macOS, are
    ignored. Something named like an image that is not a file (a folder, a
    pipe, a broken link) counts as a file that cannot be decoded, and is not
    opened.

    Args:
        path: The folder.
        unreadable: What to do with files that cannot be decoded: "skip" them
            with a warning that lists them, or "raise".
        verify: Whether to decode every file once in order to find them.
            Otherwise, a damaged file raises an error when it is read; whether
            it is a file is always checked.
        on_bad_file: What to do with a file that goes bad later: "raise" an
            error that names it, or "skip" it. In training, the next file of
            its class then takes its place; evaluations and indexes leave it
            out, and embeddings of it are NaN. The log names each file, and
            their number at the end. More than 1 % of the files, and more than
            one, are an error.

    Returns:
        A set of file paths, with classes named after their folders.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If there are no images in class folders, or, with
            `unreadable="raise"`, if a file cannot be decoded.
    """
    check_choice("image_folder", "unreadable", unreadable, ("skip", "raise"))
    check_choice(
        "image_folder", "on_bad_file", on_bad_file, get_args(OnBadFile)
    )
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(
            "`path` of image_folder must be a folder that holds a folder of "
            f"images per class. Received: path={os.fspath(path)!r}, which "
            f"{'is not a folder' if root.exists() else 'does not exist'}."
        )
    skipped: Skipped = defaultdict(list)
    entries = _visible(root)
    stray = _images([x for x in entries if not x.is_dir()], skipped)
    skipped["images directly in it have no class."] += stray
    folders = {
        x.name: _images(_visible(x), skipped) for x in entries if x.is_dir()
    }
    files = [file for paths in folders.values() for file in paths]
    bad = _unreadable(files, verify, raises=unreadable == "raise")
    for file, error in bad.items():
        reason = str(error).partition(" cannot be decoded: ")[2]
        skipped[f"cannot be decoded: {reason}"].append(file)
    classes = {
        name: good
        for name, paths in folders.items()
        if (good := [file for file in paths if file not in bad])
    }
    skipped["folders without a readable image are not classes."] += [
        root / name for name in folders if name not in classes
    ]
    if not classes:
        raise ValueError(_no_images(root, stray, skipped))
    _warn(root, skipped)
    paths = [file for files in classes.values() for file in files]
    sizes = [len(files) for files in classes.values()]
    labels = np.repeat(np.arange(len(classes)), sizes)
    images = ImageSet(paths, labels, names=list(classes))
    return images.skipping(BadFiles.of(images, on_bad_file))


@dataset(
    "image_folder",
    "images in path/class/image.jpg, classes split in byte order",
    leave_out=["verify"],
)
def image_folder_splits(
    path: str | os.PathLike[str],
    train_classes: Count | Fraction = 0.5,
    validation: HeldOut = 0.2,
    seed: int = 0,
    unreadable: Literal["skip", "raise"] = "skip",
    verify: bool = True,
    on_bad_file: OnBadFile = "raise",
) -> DataSplits:
    """An image folder, split by class.

    Args:
        path: See `image_folder`.
        unreadable: See `image_folder`.
        verify: See `image_folder`.
        on_bad_file: See `image_folder`.
        train_classes: Number or fraction of the classes, in byte order, for
            training; the others are for testing.
        validation: Fraction of the training classes that is held out for model
            selection.
        seed: Determines which classes are held out.

    Returns:
        The splits, named after the folder.

    Raises:
        FileNotFoundError: See `image_folder`.
        ValueError: See `image_folder`; also if there are too few classes.
    """
    images = image_folder(path, unreadable, verify, on_bad_file)
    name = Path(path).resolve().name
    return DataSplits.by_class(images, name, train_classes, validation, seed)


def images_in(folder: Path) -> list[Path]:
    skipped: Skipped = defaultdict(list)
    files = _images([x for x in _visible(folder) if not x.is_dir()], skipped)
    _warn(folder, skipped)
    return files


@functools.cache
def readable_extensions() -> tuple[str, ...]:
    """File extensions that the installed packages can read as images."""
    from PIL import features

    has_heif = importlib.util.find_spec("pillow_heif") is not None
    heif = (".heic", ".heif") if has_heif else ()
    # Pillow's older versions do not know the name.
    has_avif = "avif" in features.modules and features.check("avif")
    return (*EXTENSIONS, *heif, *((".avif",) if has_avif else ()))


def _visible(folder: Path) -> list[Path]:
    """The contents of a folder that are not hidden, in byte order."""
    entries = (x for x in folder.iterdir() if not x.name.startswith("."))
    return sorted(entries, key=lambda x: os.fsencode(x.name))


def _images(paths: list[Path], skipped: Skipped) -> list[Path]:
    images = []
    for path in paths:
        kind = path.suffix.lower()
        if kind in readable_extensions():
            images.append(path)
        elif path.is_dir():
            skipped[_FOLDERS].append(path)
        else:
            reason = f"{kind or 'without an extension'}: not an image."
            if kind in _OPTIONAL:
                reason = f"{kind} files can be read after `{_OPTIONAL[kind]}`."
            skipped[reason].append(path)
    return images


def _unreadable(
    files: list[Path], verify: bool, raises: bool
) -> dict[Path, ValueError]:
    """Files that cannot be decoded, and why; decodes all if `verify`."""
    bad: dict[Path, ValueError] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = pool.map(_problem, files, repeat(verify))
        checks = track(problems, len(files), "Checking images")
        for file, problem in zip(files, checks, strict=True):
            if problem and raises:
                pool.shutdown(wait=False, cancel_futures=True)
                raise problem
            if problem:
                bad[file] = problem
    return bad


def _problem(file: Path, verify: bool) -> ValueError | None:
    if not is_utf8(str(file)):
        return ValueError(
            f"The image file {str(file)!a} cannot be decoded: its path is not "
            "in UTF-8. Rename it."
        )
    # Opening a pipe could block forever.
    if not os.path.isfile(file):
        return ValueError(
            f"The image file {str(file)!r} cannot be decoded: it is a folder, "
            "a pipe or a broken link. Remove it."
        )
    try:
        if verify:
            read_image(file)
    except ValueError as error:
        return error
    return None


def _describe(skipped: Skipped) -> str:
    parts = []
    for reason, paths in skipped.items():
        names = ", ".join(printable(str(x)) for x in paths[:_MAX_NAMES])
        more = len(paths) - _MAX_NAMES
        names += f" and {more} more" if more > 0 else ""
        parts += [f"{len(paths)} ({names}): {reason}"] * bool(paths)
    return " ".join(parts)


def _warn(root: Path, skipped: Skipped) -> None:
    if summary := _describe(skipped):
        warnings.warn(f"Skipped in {root}: {summary}", stacklevel=3)


def _no_images(root: Path, stray: list[Path], skipped: Skipped) -> str:
    way_out = f"Put images into {root / 'name_of_class'}."
    if nested := skipped[_FOLDERS]:
        way_out = (
            f"Use path={str(nested[0].parent)!r} if the classes are in it. For "
            "classes in several folders, write a table of paths and labels for "
            "keras_dml.data.table."
        )
    if stray:
        way_out = f"Use the parent folder if {root.name!r} is a class."
    return (
        "`path` of image_folder must contain one folder of images per "
        f"class, as in path/class/image.jpg. Received: path={str(root)!r}, "
        f"with no image in any of its subfolders. {way_out} "
        f"{_describe(skipped)}".rstrip()
    )
