"""Label sets: several labels per example, as a table of booleans."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.bool_]


def are_label_sets(labels: Any) -> bool:
    """Whether each example has a set of labels: booleans (N, C), or sets."""
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        return labels.ndim == 2 and labels.dtype == bool
    if not isinstance(labels, list | tuple | np.ndarray):
        return False
    return len(labels) > 0 and all(
        isinstance(x, set | frozenset) for x in labels
    )


def as_table(
    labels: Any, names: Mapping[int, str], owner: str
) -> tuple[Table, Mapping[int, str]]:
    """Which example has which label, (N, C), read-only, and the label names.

    Sets of strings are numbered like labels that are strings: first by
    `names`, then the others in alphabetical order. Sets of integers are column
    numbers.

    Raises:
        ValueError: If sets contain anything else.
    """
    if isinstance(labels, np.ndarray) and labels.dtype == bool:
        table = labels.copy()
        _check_names(table.shape[1], names, owner)
    else:
        table, names = _table_of(labels, names, owner)
    table.flags.writeable = False
    return table, names


def _table_of(
    sets: Sequence[Any], names: Mapping[int, str], owner: str
) -> tuple[Table, Mapping[int, str]]:
    found = set().union(*sets)
    if found and all(isinstance(x, str) for x in found):
        numbers = {name: number for number, name in names.items()}
        first = max(names, default=-1) + 1
        new = sorted(found - set(numbers))
        numbers.update((name, first + i) for i, name in enumerate(new))
        names = {number: name for name, number in numbers.items()}
    elif all(isinstance(x, int | np.integer) and x >= 0 for x in found):
        numbers = {x: int(x) for x in found}
    else:
        odd = next(
            x for x in found if not isinstance(x, int | np.integer) or x < 0
        )
        raise ValueError(
            f"`labels` of {owner}, if they are sets, must contain only "
            "strings or only numbers 0 to C − 1. Received: a set with "
            f"{odd!r} in it. Number the labels, or use strings."
        )
    columns = 1 + max([*numbers.values(), *names], default=-1)
    if columns > 2**20:
        raise ValueError(
            f"`labels` of {owner}, if they are sets of numbers, must be the "
            "columns of a table. Received: a label of "
            f"{max(numbers.values())}. Number the labels from 0."
        )
    table = np.zeros((len(sets), columns), bool)
    for row, labels in enumerate(sets):
        table[row, [numbers[x] for x in labels]] = True
    return table, names


def _check_names(columns: int, names: Mapping[int, str], owner: str) -> None:
    if names and not 0 <= min(names) <= max(names) < columns:
        raise ValueError(
            f"`names` of {owner} must name columns of `labels`. Received: "
            f"names of {min(names)} to {max(names)}, {columns} columns."
        )
