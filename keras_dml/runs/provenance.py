"""Provenance of results: on which images, and where, they were measured."""

import hashlib
import os
import platform
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.data.contents import contents
from keras_dml.data.examples import any_labels_of

CODE = "code"


def digest(examples: Examples) -> str:
    """A digest of which examples are in a set, in which order and class.

    Of several labels each it has all.

    They are told apart by what their source calls them; else files by
    their paths below the folder that they share, and pixels and arrays by
    themselves. Sets that differ in any of this have different digests,
    and a set that was moved to another folder keeps its own.

    Returns:
        SHA-256 in hexadecimal.
    """
    labels = any_labels_of(examples, "examples.labels", "digest")
    if examples.has_label_sets:
        hashed = hashlib.sha256(str(labels.shape).encode() + labels.tobytes())
    else:
        hashed = hashlib.sha256(labels.astype("<i8").tobytes())
    for part in _contents(examples):
        hashed.update(part)
    return hashed.hexdigest()


def _contents(examples: Examples) -> Iterator[bytes]:
    """What tells the examples of a set apart, in order."""
    if examples.ids is not None:
        yield from (name.encode() + b"\0" for name in examples.ids)
    elif not isinstance(examples, ImageSet):
        yield from contents(examples)
    elif examples.pixels is not None:
        yield str(examples.pixels.shape).encode()
        yield examples.pixels.tobytes()
    else:
        paths = examples.paths or ()
        root = os.path.commonpath(map(os.path.dirname, paths))
        for path in paths:
            yield os.path.relpath(path, root).encode() + b"\0"


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
