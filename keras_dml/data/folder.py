"""Folders of images: root/class/image.jpg."""

import functools
import importlib.util
import logging
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
from keras_dml.utils.types import Count, Fraction, HeldOut

EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif",
    ".tiff",
)  # fmt: skip
"""File extensions that are always read as images."""

# How others end that are read if something is installed, and what.
_OPTIONAL = {
    ".heic": 'pip install "keras-dml[heif]"',
    ".heif": 'pip install "keras-dml[heif]"',
    ".avif": 'pip install "pillow>=11.3"',
}

# Paths that a warning names, and those of each kind of file.
_NAMED, _NAMED_OF_KIND = 20, 2

_NO_EXTENSION = "without an extension"

logger = logging.getLogger(__name__)


def image_folder(
    path: str | os.PathLike[str],
    unreadable: str = "skip",
    verify: bool = True,
) -> ImageSet:
    """The images of a folder with one subfolder per class.

    Classes and images are in the byte order of their names, and labels follow
    that order, from 0. Images are files that end in .jpg, .jpeg, .jpe, .jfif,
    .png, .bmp, .gif, .webp, .tif or .tiff, in lower or upper case; in .heic or
    .heif, if pillow-heif is installed; and in .avif, if Pillow can read it.
    Warnings list everything that is skipped: files that cannot be decoded, and
    why; other files, by type, with what is required to read them; folders
    inside a class; folders without an image, which are not classes; and hidden
    files or folders, if they are named like images (such as the `._*` files of
    macOS) or contain images. Other hidden files are listed in the log (level
    INFO). Something named like an image that is not a file (a folder, a pipe,
    a broken link) counts as a file that cannot be decoded, and is not opened.

    Args:
        path: The folder.
        unreadable: What to do with files that cannot be decoded: "skip" them
            with a warning that lists them, or "raise".
        verify: Whether to decode every file once in order to find them.
            Otherwise, a damaged file raises an error when it is read; whether
            it is a file is always checked.

    Returns:
        A set of file paths, with classes named after their folders.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If there are no images in class folders, or, with
            `unreadable="raise"`, if a file cannot be decoded.
    """
    check_choice("image_folder", "unreadable", unreadable, ("skip", "raise"))
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(
            "`path` of image_folder must be a folder that holds a folder of "
            f"images per class. Received: path={os.fspath(path)!r}, which "
            f"{'is not a folder' if root.exists() else 'does not exist'}."
        )
    entries, hidden = _listed(root)
    stray = [x for x in _images(entries) if not x.is_dir()]
    inside = {}
    for folder in entries:
        if folder.is_dir():
            inside[folder.name], more = _listed(folder)
            hidden += more
    others = [x for found in inside.values() for x in found]
    folders = {name: _images(found) for name, found in inside.items()}
    if not any(folders.values()):
        nested = [x for x in others if x.is_dir()]
        files = [x for x in others if x not in set(nested)]
        said = _said_of(files) + _said_of_hidden(hidden)
        raise ValueError(_no_images(root, stray, nested) + said)
    if stray:
        _warn(f"Images directly in {root}, which have no class,", stray)
    bad = _unreadable(
        [file for files in folders.values() for file in files],
        verify,
        raises=unreadable == "raise",
    )
    classes = {}
    for name, files in folders.items():
        if good := [file for file in files if file not in bad]:
            classes[name] = good
    if bad:
        _warn_of_bad(bad)
    _name_others([x for x in entries if not x.is_dir()], others, hidden)
    empty = [root / name for name in folders if name not in classes]
    if empty:
        _warn(
            "Folders without a readable image, which are not classes,",
            empty,
        )
    if not classes:
        raise ValueError(_no_images(root, [], [], *bad.values()))
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
    validation: HeldOut = 0.2,
    seed: int = 0,
    unreadable: Literal["skip", "raise"] = "skip",
    verify: bool = True,
) -> DataSplits:
    """An image folder, split by class.

    Args:
        path: See `image_folder`.
        unreadable: See `image_folder`.
        verify: See `image_folder`.
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
    images = image_folder(path, unreadable, verify)
    name = Path(path).resolve().name
    return DataSplits.by_class(images, name, train_classes, validation, seed)


def images_in(folder: Path) -> list[Path]:
    """The images directly in a folder; a warning lists everything else."""
    entries, hidden = _listed(folder)
    _name_others([x for x in entries if not x.is_dir()], [], hidden)
    return _images(entries)


@functools.cache
def readable_extensions() -> tuple[str, ...]:
    """File extensions that the installed packages can read as images."""
    from PIL import features

    has_heif = importlib.util.find_spec("pillow_heif") is not None
    heif = (".heic", ".heif") if has_heif else ()
    # Pillow's older versions do not know the name.
    has_avif = "avif" in features.modules and features.check("avif")
    return (*EXTENSIONS, *heif, *((".avif",) if has_avif else ()))


def _listed(folder: Path) -> tuple[list[Path], list[Path]]:
    """The visible and the hidden contents of a folder, in byte order."""
    entries = sorted(folder.iterdir(), key=lambda x: os.fsencode(x.name))
    hidden = [x for x in entries if x.name.startswith(".")]
    if hidden:
        names = ", ".join(x.name for x in hidden[:_NAMED])
        logger.info("Skipped hidden files in %s: %s.", folder, names)
    return [x for x in entries if not x.name.startswith(".")], hidden


def _images(paths: list[Path]) -> list[Path]:
    extensions = readable_extensions()
    return [path for path in paths if path.suffix.lower() in extensions]


def _name_others(
    outside: list[Path], inside: list[Path], hidden: list[Path]
) -> None:
    """Warns of anything that is not an image in a class folder."""
    found = outside + inside
    others = set(found) - set(_images(found))
    folders = [x for x in inside if x in others and x.is_dir()]
    if folders:
        _warn("Folders inside class folders", folders)
    files = [x for x in found if x in others and x not in set(folders)]
    said = _said_of_hidden(hidden)
    if files:
        said = (
            f"Files that cannot be read as images are skipped ({len(files)}):"
            f"{_said_of(files)}{said}"
        )
    if said:
        warnings.warn(said.strip(), stacklevel=3)


def _said_of(files: list[Path]) -> str:
    """The number of files of each type, and what is required to read them.

    It starts with a space, and is empty if there are none.
    """
    kinds: dict[str, list[str]] = {}
    for file in files:
        kinds.setdefault(file.suffix.lower(), []).append(str(file))
    said = ""
    for kind, paths in sorted(kinds.items(), key=lambda x: -len(x[1])):
        such_as = ", ".join(paths[:_NAMED_OF_KIND])
        said += f" {len(paths)} {f'of {kind}' if kind else _NO_EXTENSION}"
        said += f" ({such_as}"
        said += ", …)" if len(paths) > _NAMED_OF_KIND else ")"
        if kind in _OPTIONAL:
            said += f", which can be read after `{_OPTIONAL[kind]}`"
        said += "."
    return said


def _said_of_hidden(hidden: list[Path]) -> str:
    """A sentence on hidden files that may be images, with a leading space."""
    found = [
        x
        for x in hidden
        if (_images(list(x.iterdir())) if x.is_dir() else _images([x]))
    ]
    if not found:
        return ""
    such_as = ", ".join(map(str, found[:_NAMED_OF_KIND]))
    rest = ", …" if len(found) > _NAMED_OF_KIND else ""
    return (
        " Hidden files and folders that are named like images or contain "
        "images are skipped "
        f"({len(found)}): {such_as}{rest}."
    )


def _unreadable(
    files: list[Path], verify: bool, raises: bool
) -> dict[Path, ValueError]:
    """Files that cannot be decoded, and why; others only if verified."""
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
    return bad


def _warn_of_bad(bad: dict[Path, ValueError]) -> None:
    """Warns of files that cannot be decoded, with each reason once."""
    files_of: dict[str, list[Path]] = {}
    for file, problem in bad.items():
        reason = str(problem).partition(" cannot be decoded: ")[2]
        files_of.setdefault(reason, []).append(file)
    said = " ".join(
        f"{_named(files)}: {reason}"
        for reason, files in list(files_of.items())[:_NAMED]
    )
    warnings.warn(
        f"Image files that cannot be decoded are skipped ({len(bad)}): {said}",
        stacklevel=3,
    )


def _problem(file: Path) -> ValueError | None:
    problem = _not_a_file(file)
    if problem is None:
        try:
            read_image(file)
        except ValueError as error:
            return error
    return problem


def _not_a_file(file: Path) -> ValueError | None:
    """Opening a pipe could block forever."""
    if os.path.isfile(file):
        return None
    return ValueError(
        f"The image file {str(file)!r} cannot be decoded: it is a folder, a "
        "pipe or a broken link. Remove it."
    )


def _named(paths: list[Path]) -> str:
    named = ", ".join(str(path) for path in paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def _warn(what: str, paths: list[Path]) -> None:
    warnings.warn(
        f"{what} are skipped ({len(paths)}): {_named(paths)}.", stacklevel=3
    )


def _no_images(
    root: Path, stray: list[Path], nested: list[Path], *bad: ValueError
) -> str:
    found = "no image in any of its subfolders"
    way_out = f"Put images into {root / 'name_of_class'}."
    if bad:
        found += f" that can be decoded ({len(bad)} cannot)"
        way_out = f"The first: {bad[0]}"
    if nested:
        found = f"folders in its folders ({len(nested)}): {nested[0]}, …"
        way_out = (
            f"Use path={str(nested[0].parent)!r} if those are the classes. For "
            "classes in several folders, write a table of paths and labels for "
            "keras_dml.data.table."
        )
    if stray:
        found = f"images directly in it ({len(stray)}): {stray[0].name}, …"
        way_out = f"Use the parent folder if {root.name!r} is a class."
    return (
        "`path` of image_folder must contain one folder of images per "
        f"class, as in path/class/image.jpg. Received: path={str(root)!r}, "
        f"with {found}. {way_out}"
    )
