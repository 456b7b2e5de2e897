"""Provenance of results: on which images, and where, they were measured."""

import hashlib
import os
import platform
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np

from keras_dml.data import ImageSet

CODE = "code"


def digest(images: ImageSet) -> str:
    """A digest of which images are in a set, in which order and class.

    Images are told apart by what their source calls them; else files by
    their paths below the folder that they share, and pixels by
    themselves. Sets that differ in any of this have different digests,
    and a set that was moved to another folder keeps its own.

    Returns:
        SHA-256 in hexadecimal.
    """
    hashed = hashlib.sha256(images.labels.astype("<i8").tobytes())
    for name in _names(images):
        hashed.update(name.encode() + b"\0")
    if images.ids is None and images.pixels is not None:
        hashed.update(str(images.pixels.shape).encode())
        hashed.update(images.pixels.tobytes())
    return hashed.hexdigest()


def _names(images: ImageSet) -> tuple[str, ...]:
    if images.ids is not None:
        return images.ids
    if images.paths is None:
        return ()
    root = os.path.commonpath(map(os.path.dirname, images.paths))
    return tuple(os.path.relpath(path, root) for path in images.paths)


def environment() -> dict[str, str]:
    """Hardware and versions, by name.

    The entry "code" is a digest of this package's source files, since a
    version that is worked on has many.
    """
    backend = keras.config.backend()
    return {
        "hardware": _hardware(),
        "Python": platform.python_version(),
        "keras-dml": version("keras-dml"),
        "keras": keras.__version__,
        # Its package goes by several names, tensorflow-cpu for instance.
        backend: import_module(backend).__version__,
        "numpy": np.__version__,
        CODE: _code(),
    }


def _code() -> str:
    package = Path(__file__).parents[1]
    hashed = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        hashed.update(path.relative_to(package).as_posix().encode() + b"\0")
        hashed.update(path.read_bytes() + b"\0")
    return hashed.hexdigest()[:12]


def _hardware() -> str:
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # Only Linux says what this process may use.
        cores = os.cpu_count() or 1
    counts = {
        "CPU core": cores,
        "GPU": len(keras.distribution.list_devices("gpu")),
    }
    return ", ".join(
        f"{count} {thing}{'s' if count > 1 else ''}"
        for thing, count in counts.items()
        if count
    )
