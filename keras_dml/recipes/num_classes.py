"""`num_classes: auto`: the number of training classes, once it is known."""

from collections.abc import Iterator
from typing import Any

KEY = "num_classes"
AUTO = "auto"


def filled(config: Any, count: int) -> Any:
    """`config` with `count` for every `num_classes: auto` inside it."""
    if isinstance(config, dict):
        return {
            key: count if (key, value) == (KEY, AUTO) else filled(value, count)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(filled(value, count) for value in config)
    return config


def check(config: Any, count: int) -> None:
    """Raises `ValueError` if a number of classes inside is below `count`.

    Examples of some classes would have no weight.
    """
    small = [n for n in _values(config) if isinstance(n, int) and n < count]
    if small:
        raise ValueError(
            f"`{KEY}` of a loss must not be less than the number of training "
            f"classes, {count} without those held out. Received: "
            f"{KEY}={small[0]}. Use `{KEY}: {AUTO}`."
        )


def is_set(config: Any) -> bool:
    """Whether there is a number of classes, or "auto", inside `config`."""
    return any(value is not None for value in _values(config))


def is_auto(config: Any) -> bool:
    """Whether there is a `num_classes: auto` inside `config`."""
    return AUTO in _values(config)


def _values(config: Any) -> Iterator[Any]:
    if isinstance(config, dict):
        for key, value in config.items():
            if key == KEY:
                yield value
            yield from _values(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _values(value)
