"""Trust: which modules a name such as "package.module:function" may import.

A recipe that is trained imports what it names: whoever starts it wrote it, or
read it. A run, an index or a model that is only read may be anybody's. Then
names find only modules that are imported already, unless the author is trusted.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

_source: ContextVar[str] = ContextVar("source", default="")
_trust: ContextVar[bool] = ContextVar("trust", default=False)


@contextmanager
def reading(
    source: str | os.PathLike[str] = "", trust: bool = False
) -> Iterator[None]:
    """Context that imports no module named by `source` without trust.

    What is read within it, such as the model of a run, is trusted likewise.
    """
    source_before = _source.set(os.fspath(source))
    trust_before = _trust.set(trust or _trust.get())
    try:
        yield
    finally:
        _source.reset(source_before)
        _trust.reset(trust_before)


def is_trusted() -> bool:
    """Whether code of what is being read may run."""
    return _trust.get()


def import_named(module: str) -> ModuleType:
    """Imports a module that a recipe, a run or a model names.

    Raises:
        ImportError: If it cannot be imported.
        ValueError: If it is named by what is only read, is not imported and
            not trusted.
    """
    # Not above, as commands choose the backend before Keras is imported.
    from keras.src.saving.serialization_lib import in_safe_mode

    if not module or module.startswith("."):
        raise ImportError(f"{module!r} is no absolute name of a module")
    source, way_out = _source.get(), "trust=True (--trust in a command)"
    if not source and in_safe_mode():  # Read by Keras itself.
        source, way_out = "a saved model", "safe_mode=False"
    if source and not is_trusted() and module not in sys.modules:
        raise ValueError(
            "Code named by a run or model must be imported already, or "
            f"trusted. Received: the module {module!r}, named by {source}. "
            f"Use `import {module}` before, or, if you trust its author, "
            f"{way_out}."
        )
    return importlib.import_module(module)
