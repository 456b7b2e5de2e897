"""The registry of this package's networks, by name."""

from collections.abc import Callable
from typing import Any, TypeVar

import keras

from keras_dml.backbones import applications
from keras_dml.utils.registry import Registry

Network = TypeVar("Network", bound=Callable[..., keras.Model])

BACKBONES: Registry[Callable[..., keras.Model]] = Registry("backbone")
"""All networks of this package, by their names for `get`."""


def network(
    name: str,
    definition: str,
    *,
    has_weights: bool = False,
    branches: tuple[str, str] | None = None,
) -> Callable[[Network], Network]:
    """A decorator that registers a function of `input_shape` as a backbone.

    Args:
        name: The name for `get` and recipes, which is also the model's name.
        definition: A description in one line.
        has_weights: Whether there are published weights for
            `convert.load_weights`.
        branches: The layers after which an ensemble of heads branches off and
            its attention ends; see `methods.abe`.
    """
    register: Any = BACKBONES.register(
        name, definition, has_weights=has_weights, branches=branches
    )
    return register


def with_weights() -> tuple[str, ...]:
    """Networks of this package that have published weights."""
    return tuple(x for x, e in BACKBONES.items() if e.details["has_weights"])


def known_branches() -> dict[str, tuple[str, str]]:
    """Where ensembles branch off, by name of the backbone."""
    own = {x: e.details["branches"] for x, e in BACKBONES.items()}
    return applications.BRANCHES | {x: b for x, b in own.items() if b}
