"""Provenance of results: the versions and hardware behind them."""

import hashlib
import os
import platform
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np

CODE = "code"


def environment() -> dict[str, str]:
    """Hardware and versions, by name.

    The entry "code" is a digest of this package's source files, since a
    version that is worked on has many.
    """
    return {"hardware": hardware(), **versions()}


def versions() -> dict[str, str]:
    """Versions by name; see `environment`."""
    backend = keras.config.backend()
    package = Path(__file__).parents[1]
    sources = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        sources.update(path.relative_to(package).as_posix().encode() + b"\0")
        sources.update(path.read_bytes() + b"\0")
    return {
        "Python": platform.python_version(),
        "keras-dml": version("keras-dml"),
        "keras": keras.__version__,
        # Its package goes by several names, tensorflow-cpu for instance.
        backend: import_module(backend).__version__,
        "numpy": np.__version__,
        CODE: sources.hexdigest()[:12],
    }


def usable_cores() -> int:
    """CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Only Linux says what a process may use.
        return os.cpu_count() or 1


def hardware() -> str:
    """Cores that may be used, and GPUs: "2 CPU cores, 1 GPU"."""
    # JAX raises if it is asked for GPUs alone and there are none.
    devices = keras.distribution.list_devices()
    gpus = sum(name.startswith("gpu") for name in devices)
    counts = {"CPU core": usable_cores(), "GPU": gpus}
    return ", ".join(
        f"{count} {thing}{'s' if count > 1 else ''}"
        for thing, count in counts.items()
        if count
    )
