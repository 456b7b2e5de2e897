"""`num_classes: auto`: the number of training classes, once it is known.

And `class_counts: auto`, the number of examples of each.
"""

from collections.abc import Iterator, Sequence
from typing import Any

KEY = "num_classes"
COUNTS = "class_counts"
AUTO = "auto"


def filled(config: Any, counts: Sequence[int]) -> Any:
    """`config` with numbers for every "auto" inside it.

    `counts` is the number of examples of each training class.
    """
    if isinstance(config, dict):
        values = {KEY: len(counts), COUNTS: list(counts)}
        return {
            key: values[key]
            if value == AUTO and key in values
            else filled(value, counts)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(filled(value, counts) for value in config)
    return config


MANY = 10_000
"""A number of classes of which every share that is of use is at least two."""


def placeholder(config: Any) -> Any:
    """`config` filled to be checked before the training set is known."""
    numbers = [n for n in _values(config) if isinstance(n, int)]
    sizes = [len(c) for c in _values(config, COUNTS) if isinstance(c, list)]
    return filled(config, [1] * max([*numbers, *sizes], default=MANY))


def check(config: Any, count: int) -> None:
    """Raises `ValueError` if a number of classes inside is below `count`.

    Examples of some classes would have no weight.
    """
    small = [n for n in _values(config) if isinstance(n, int) and n < count]
    if small:
        raise ValueError(
            f"`{KEY}` of a loss must be at least the number of training "
            f"classes, which is {count} without those held out. Received: "
            f"{KEY}={small[0]}. Use `{KEY}: {AUTO}`."
        )


def is_set(config: Any) -> bool:
    """Whether there is a number of classes, or "auto", inside `config`."""
    return any(value is not None for value in _values(config))


def _values(config: Any, name: str = KEY) -> Iterator[Any]:
    if isinstance(config, dict):
        for key, value in config.items():
            if key == name:
                yield value
            yield from _values(value, name)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _values(value, name)
