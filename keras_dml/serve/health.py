"""Health: what /healthz says."""

from typing import Any

from keras_dml.serve.current import Current
from keras_dml.serve.reloading import Reloader


def health(current: Current, reloader: Reloader | None) -> dict[str, Any]:
    """What is served, what is being loaded, and what is wrong.

    A server that answers is healthy: a problem is one of its files.
    """
    index = current.index
    return {
        "status": "ok",
        "model": {"name": current.name, "version": current.version},
        "gallery": None if index is None else {"rows": len(index)},
        "loading": None if reloader is None else reloader.loading,
        "problem": None if reloader is None else reloader.problem,
    }
