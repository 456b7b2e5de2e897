"""Finding things by name, with errors that name the nearest known one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from keras_dml.utils.arguments import did_you_mean

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the known name most like `name`."""
    names = list(known)
    known_are = f"Known are: {', '.join(sorted(names))}."
    return did_you_mean(name, names).strip() or known_are


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
