"""Deep metric learning for Keras 3, on TensorFlow and JAX.

In a program, `import keras_dml` imports the parts that register the classes of
saved models with Keras; the others are imported when they are first used. The
command `keras-dml`, whose help must not wait for TensorFlow, imports all parts
when they are first used, and those that register when it runs a command.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

_REGISTER = (
    "backbones",
    "data",
    "layers",
    "losses",
    "methods",
    "model",
    "optimizers",
)
"""The parts whose classes occur in saved models."""

if TYPE_CHECKING:
    from keras_dml import (
        backbones,
        callbacks,
        data,
        distribution,
        embedding,
        evaluation,
        export,
        hub,
        layers,
        losses,
        methods,
        optimizers,
        recipes,
        reports,
        runs,
        search,
        visualization,
    )
    from keras_dml.model import Head, LossObjective, MetricModel, Objective

__all__ = [
    "Head",
    "LossObjective",
    "MetricModel",
    "Objective",
    "backbones",
    "callbacks",
    "data",
    "distribution",
    "embedding",
    "evaluation",
    "export",
    "hub",
    "layers",
    "losses",
    "methods",
    "optimizers",
    "recipes",
    "reports",
    "runs",
    "search",
    "visualization",
]


def import_parts() -> None:
    """Imports the parts that `import keras_dml` imports in a program."""
    for name in _REGISTER:
        importlib.import_module(f"keras_dml.{name}")


if not TYPE_CHECKING:  # Type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        """Imports a part when it is first used."""
        if name not in __all__:
            from keras_dml.utils.registry import no_attribute

            raise no_attribute(__name__, name)
        if name[0].isupper():
            return getattr(importlib.import_module("keras_dml.model"), name)
        return importlib.import_module(f"keras_dml.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.path.basename(sys.argv[0]) not in ("keras-dml", "keras-dml.exe"):
    import_parts()
