"""Finding things by name, with errors that name the nearest known one."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the known name most like `name`."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known are: {', '.join(sorted(names))}."


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises `ValueError` naming the nearest known name."""
    names = list(known)
    if name not in names:
        raise ValueError(
            f"There is no {kind} {name!r}. {nearest(str(name), names)}"
        )


def from_name(
    kind: str,
    config: Mapping[str, Any],
    known: Mapping[str, Callable[..., T]],
    arguments: Callable[[str], Iterable[str]],
) -> T:
    """Makes `{"name": name, **arguments}`.

    Args:
        kind: What is made, for errors.
        config: The name and the arguments.
        known: Makers by name.
        arguments: The argument names of the thing of a name.

    Raises:
        ValueError: If the name or an argument is unknown.
    """
    keywords = dict(config)
    name = keywords.pop("name")
    check_known(kind, name, known)
    for keyword in keywords:
        check_known(f"argument of {kind} {name!r},", keyword, arguments(name))
    return known[name](**keywords)
