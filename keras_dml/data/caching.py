"""Caching of generated data, such as decoded images."""

import hashlib
import json
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Literal, TypeAlias

import numpy as np

from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import Decoded, Loader
from keras_dml.data.validation import Pixels
from keras_dml.data.view import Augment
from keras_dml.utils.files import atomic_file, write_atomically
from keras_dml.utils.progress import track
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

logger = logging.getLogger(__name__)

Cache: TypeAlias = Literal["none", "auto", "memory", "disk"]

MEMORY_SHARE = 0.5
"""Share of the available memory that "auto" uses at most."""

_SAMPLE_SIZE = 32
"""Number of images from which the size of all is estimated."""

# Raise it when decoding, or the format of these files, changes.
_VERSION = "4"

# The limit and the usage of a container's memory, which psutil ignores.
_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")
_USAGE_FILE = Path("/sys/fs/cgroup/memory.current")


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


def preload(images: ImageSet, augment: Augment, cache: Cache) -> Decoded | None:
    """The images of files after `augment.prepare`; None if not cached."""
    if cache == "none" or images.paths is None:
        return None
    file = _file(images, augment)
    if cache != "memory" and (stored := _from_disk(file, len(images))):
        stored_size = megabytes(stored.flat.size)
        logger.info("Reusing decoded images from %s, %s.", file, stored_size)
        return stored
    # The size of all images is estimated from a sample.
    rows = np.linspace(0, len(images) - 1, _SAMPLE_SIZE).astype(int)
    sample = Loader(images.select(np.unique(rows))).each(augment.prepare)
    size = round(len(images) * float(np.mean([x.nbytes for x in sample])))
    storage = _choose_storage(cache, size, file)
    if storage == "none":
        return None
    prepared = Loader(images).each(augment.prepare)
    decoded = track(prepared, len(images), "Decoding images")
    if storage == "memory":
        with _memory_file() as opened:
            return _map(opened, _write(decoded, opened))
    with atomic_file(file) as partial, partial.open("wb") as opened:
        shapes = _write(decoded, opened)
    # The index is written last, because a file without it is ignored.
    index = json.dumps({"shapes": shapes.tolist()})
    write_atomically(file.with_suffix(".json"), index)
    return _map(file, shapes)


def _memory_file() -> IO[bytes]:
    """A file in memory, or on disk if the system has no such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("decoded"), "w+b")
    return tempfile.TemporaryFile()


def _write(images: Iterable[Pixels], file: IO[bytes]) -> Rows:
    """Writes images one after another, and returns their shapes, (N, 3)."""
    shapes = []
    for image in images:
        file.write(image.tobytes())
        shapes.append(image.shape)
    file.flush()
    return np.array(shapes, np.int64)


def _map(file: Path | IO[bytes], shapes: Rows) -> Decoded:
    # It is copied on write, because TensorFlow rejects read-only memory.
    return Decoded(np.memmap(file, np.uint8, "c"), shapes)


def _from_disk(path: Path, count: int) -> Decoded | None:
    """Reads `count` images from a file; None if it is missing or damaged."""
    try:
        index = json.loads(path.with_suffix(".json").read_text("utf-8"))
        shapes = np.array(index["shapes"], np.int64)
        size = path.stat().st_size
        if shapes.shape != (count, 3) or size != shapes.prod(axis=1).sum():
            raise ValueError("its size differs from that in its index")
        return _map(path, shapes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged and is created again: %s", path, error)
        return None


def megabytes(size: float) -> str:
    return f"{math.ceil(size / 1e6):,} MB"


def _choose_storage(cache: str, size: int, file: Path) -> str:
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
    sizes = f"{megabytes(size)}, with {free}"
    if cache == "none":
        logger.warning("Decoded images are not cached: they need %s.", sizes)
    else:
        where = file if cache == "disk" else cache
        logger.info("Decoded images are cached in %s: %s.", where, sizes)
    return cache


def free_disk(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _file(images: ImageSet, augment: Augment) -> Path:
    """A file whose name depends on the images and how they are prepared."""
    view = augment.view
    steps = view.preparation if augment.resizes_first else ()
    key = hashlib.sha256(repr((_VERSION, tf.__version__, steps)).encode())
    for path in images.paths or ():
        try:
            status = os.stat(path)
            state = f"{status.st_size}, {status.st_mtime_ns}"
        except OSError:
            state = "none"  # Decoding it raises the error.
        key.update(os.fsencode(os.path.abspath(path)) + b"\0")
        key.update(state.encode() + b"\n")
    if images.boxes is not None:
        key.update(images.boxes.tobytes())
    return cache_folder() / "decoded" / f"{key.hexdigest()[:32]}.pixels"


def available_memory() -> int:
    """Number of bytes of available memory, within a container's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        unused = int(_LIMIT_FILE.read_text()) - int(_USAGE_FILE.read_text())
    except (OSError, ValueError):
        return available  # There is no container, or the limit is "max".
    return min(available, max(0, unused))
