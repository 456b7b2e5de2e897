"""`num_classes: auto`: the number of training classes, once it is known.

And `class_counts: auto`, the number of examples of each.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

KEY = "num_classes"
COUNTS = "class_counts"
SHARE = "class_share"
AUTO = "auto"


def filled(config: Any, counts: Sequence[int]) -> Any:
    """`config` with numbers for every "auto" inside it.

    `counts` is the number of examples of each training class.
    """
    if isinstance(config, dict):
        known = {KEY: len(counts), COUNTS: list(counts)}
        return {
            key: known[key]
            if value == AUTO and key in known
            else filled(value, counts)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(filled(value, counts) for value in config)
    return config


MOST = 10**7
"""Of classes, more than which no loss has."""


def provisional(config: Any) -> Any:
    """`config` filled before the training set is known, to check the rest.

    Raises:
        ValueError: If there are too many classes.
    """
    numbers = [n for n in _values(config) if isinstance(n, int)]
    if max(numbers, default=0) > MOST:
        raise ValueError(
            f"`{KEY}` must be at most {MOST:,}. Received: {max(numbers)}"
        )
    sizes = [len(c) for c in _values(config, COUNTS) if isinstance(c, list)]
    # A share of the classes is at least two of them.
    shares = [x for x in _values(config, SHARE) if isinstance(x, float)]
    least = [ceil(2 / x) for x in shares if x * MOST >= 2]
    return filled(config, [1] * max([2, *numbers, *sizes, *least]))


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


def is_auto(config: Any) -> bool:
    """Whether there is a `num_classes` or `class_counts: auto` inside."""
    return any(AUTO in _values(config, key) for key in (KEY, COUNTS))


def _values(config: Any, wanted: str = KEY) -> Iterator[Any]:
    if isinstance(config, dict):
        for key, value in config.items():
            if key == wanted:
                yield value
            yield from _values(value, wanted)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _values(value, wanted)
