"""Data sets by name, each registered beside the function that loads it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from keras_dml.data.splits import DataSplits
from keras_dml.utils.registry import Registry

if TYPE_CHECKING:
    from keras_dml.data.archives.reading import Archive

Loader = TypeVar("Loader", bound=Callable[..., DataSplits])

DATASETS: Registry[Callable[..., DataSplits]] = Registry("data set")
"""Every data set by the name that recipes use."""


def dataset(
    name: str,
    definition: str,
    *,
    archive: "Archive | None" = None,
    leave_out: Sequence[str] = (),
) -> Callable[[Loader], Loader]:
    """A decorator that makes a function a data set, by name.

    A recipe's section has the arguments of the function, with their types,
    ranges and defaults; `seed` is the recipe's.

    Args:
        name: What recipes call it.
        definition: What is in it, in one line.
        archive: What it is read from, for `data.check`. Recipes take all
            of it, and so set no `counts`.
        leave_out: Arguments that recipes do not set.
    """
    left_out = [*leave_out, *["counts"] * (archive is not None)]
    register: Any = DATASETS.register(
        name, definition, archive=archive, leave_out=left_out
    )
    return register
