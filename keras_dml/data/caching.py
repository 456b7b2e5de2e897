"""Caching: where generated data, such as decoded images, are kept."""

import hashlib
import json
import logging
import math
import mmap
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from keras_dml.data.augment import Augment
from keras_dml.data.decode import image_size
from keras_dml.data.fields import Pixels
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import Decoded, Loader
from keras_dml.utils.files import atomic_file, write_atomically
from keras_dml.utils.progress import track
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

logger = logging.getLogger(__name__)

Cache: TypeAlias = Literal["none", "auto", "memory", "disk"]

MEMORY_SHARE = 0.5
"""Share of the available memory that "auto" uses at most."""

# Changes with what changes the pixels of a file, or how they are kept.
_VERSION = "4"

# Limit and use of a container's memory, which psutil does not look at.
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_USED = Path("/sys/fs/cgroup/memory.current")


def cache_folder() -> Path:
    """Returns the folder for files that can be generated again.

    It is `$KERAS_DML_HOME` if set. Otherwise it is the folder `keras_dml` in
    the user's cache folder: `$XDG_CACHE_HOME` or `~/.cache` on Linux,
    `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows. It may not exist
    yet.
    """
    home = os.environ.get("KERAS_DML_HOME")
    if home:
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "keras_dml"
    variable = "LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME"
    parent = os.environ.get(variable)
    return Path(parent or Path.home() / ".cache") / "keras_dml"


def cached(images: ImageSet, augment: Augment, cache: Cache) -> Decoded | None:
    """The images after `augment.prepare`, if they are to be cached.

    Images that are already in memory are not cached. For `cache`, see
    `pipeline`.

    Raises:
        ValueError: If `cache` is unknown, if there is not enough memory for
            "memory", or if a file cannot be decoded.
        OSError: If there is not enough space for "disk".
    """
    if cache == "none" or images.paths is None:
        return None
    file = _file(images, augment)
    kept = _from_disk(file, len(images)) if cache != "memory" else None
    if kept is not None:
        size = megabytes(kept.flat.size)
        logger.info("Reusing decoded images from %s, %s.", file, size)
        return kept
    shapes = _shapes(images, augment)
    place = _place(cache, _size_of(shapes), file)
    if place == "none":
        return None
    prepared = _prepared(images, augment, shapes)
    if place == "memory":
        return _in_memory(prepared, shapes)
    return _on_disk(file, prepared, shapes)


def _in_memory(images: Iterable[Pixels], shapes: Rows) -> Decoded:
    memory = mmap.mmap(-1, _size_of(shapes))
    decoded = Decoded(np.frombuffer(memory, np.uint8), shapes)
    for start, image in zip(decoded.starts, images, strict=True):
        decoded.flat[start : start + image.size] = image.reshape(-1)
    return decoded


def _on_disk(path: Path, images: Iterable[Pixels], shapes: Rows) -> Decoded:
    """Stores images of these shapes in a file; the .json index comes last."""
    with atomic_file(path) as partial, partial.open("wb") as file:
        for image in images:
            file.write(image.tobytes())
    index = json.dumps({"shapes": shapes.tolist()})
    write_atomically(path.with_suffix(".json"), index)
    return _mapped(path, shapes)


def _from_disk(path: Path, count: int) -> Decoded | None:
    """What `_on_disk` stored; None if it is not complete, or not `count`."""
    try:
        index = json.loads(path.with_suffix(".json").read_text("utf-8"))
        shapes = np.array(index["shapes"], np.int64)
        size = path.stat().st_size
        if shapes.shape != (count, 3) or size != _size_of(shapes):
            raise ValueError("its size differs from that in its index")
        return _mapped(path, shapes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged and is created again: %s", path, error)
        return None


def _mapped(path: Path, shapes: Rows) -> Decoded:
    # Copy on write: TensorFlow takes no memory that is read-only.
    return Decoded(np.memmap(path, np.uint8, "c"), shapes)


def _size_of(shapes: Rows) -> int:
    """Number of bytes of images with these shapes."""
    return int(shapes.prod(axis=1).sum())


def megabytes(size: float) -> str:
    """A number of bytes, for people."""
    return f"{math.ceil(size / 1e6):,} MB"


def _place(cache: str, size: int, file: Path) -> str:
    """Where decoded images are kept: "memory", "disk" or "none"."""
    memory, disk = available_memory(), free_disk(file.parent)
    free = f"{megabytes(memory)} of memory, {megabytes(disk)} on disk free"
    if cache == "auto" and size <= MEMORY_SHARE * memory:
        cache = "memory"
    elif cache == "auto":
        cache = "disk" if size <= disk else "none"
    elif size > {"memory": memory, "disk": disk}[cache]:
        error = ValueError if cache == "memory" else OSError
        raise error(
            f"`cache` of pipeline must be a place with enough space for "
            f"{megabytes(size)} of decoded images. Received: cache="
            f'{cache!r}, with {free}. Use cache="auto", or a smaller `resize`.'
        )
    taken = f"{megabytes(size)}, with {free}"
    if cache == "none":
        logger.warning("Decoded images are not cached: they need %s.", taken)
    else:
        where = file if cache == "disk" else cache
        logger.info("Decoded images are cached in %s: %s.", where, taken)
    return cache


def free_disk(folder: Path) -> int:
    """Number of free bytes on the disk of a folder, existing or not."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _file(images: ImageSet, augment: Augment) -> Path:
    """A file whose name depends on the images and how they are prepared."""
    view = augment.view
    done = view.preparation if augment.resizes_first else ()
    key = hashlib.sha256(repr((_VERSION, tf.__version__, done)).encode())
    for path in images.paths or ():
        try:
            found = os.stat(path)
            state = f"{found.st_size}, {found.st_mtime_ns}"
        except OSError:
            state = "none"  # To decode it is the error.
        key.update(os.fsencode(os.path.abspath(path)) + b"\0")
        key.update(state.encode() + b"\n")
    if images.boxes is not None:
        key.update(images.boxes.tobytes())
    return cache_folder() / "decoded" / f"{key.hexdigest()[:32]}.pixels"


def _shapes(images: ImageSet, augment: Augment) -> Rows:
    """Shapes of the prepared images, (N, 3), from their files' headers."""
    paths = images.paths or ()
    boxes = [None] * len(paths) if images.boxes is None else images.boxes
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(image_size, paths, boxes)
        sizes = list(track(found, len(paths), "Measuring images"))
    shapes = np.array([(*size, 3) for size in sizes], np.int64)
    if augment.resizes_first:
        shapes[:, :2] = augment.view.prepared_sizes(shapes[:, :2])
        shapes[:, 2] = augment.view.channels
    return shapes


def _prepared(
    images: ImageSet, augment: Augment, shapes: Rows
) -> Iterator[Pixels]:
    """The prepared images, in order, decoded in parallel."""
    loaded = Loader(images).each(augment.prepare)
    for row, image in enumerate(track(loaded, len(images), "Decoding images")):
        if image.shape != tuple(shapes[row]):
            raise ValueError(
                f"The image file {(images.paths or ())[row]!r} must have the "
                "size that its header states. Received: another size. Save it "
                "again, or use "
                'cache="none".'
            )
        yield image


def available_memory() -> int:
    """Number of bytes of available memory, within a container's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        left = int(_LIMIT.read_text()) - int(_USED.read_text())
    except (OSError, ValueError):
        return available  # No container, or "max".
    return min(available, max(0, left))
