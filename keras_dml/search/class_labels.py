"""Class labels: the numbers of class names are the same in all rows."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from keras_dml.data.fields import encoded
from keras_dml.search.filters import Where
from keras_dml.search.gallery import Gallery
from keras_dml.search.rows import Values, label_values

Pairs: TypeAlias = list[tuple[Any, Any]]
"""Labels and names of rows, or None for those that are missing."""

LABEL, NAME = "label", "name"
"""Columns with the number and the name of each row's class."""


def class_columns(labels: Any) -> dict[str, list[Any]]:
    """Columns of classes, (N,), which are integers or strings."""
    numbers, names = encoded(labels, None, "Index")
    columns = {LABEL: label_values(numbers)}
    if names and numbers.ndim == 1:
        columns[NAME] = [names[i] for i in columns[LABEL]]
    return columns


def as_in(
    gallery: Gallery, columns: Values, is_own: bool, owner: str
) -> Values:
    """Columns of rows to be written, with labels numbered as in a gallery.

    Sets number their classes from 0, each for itself. A name that the gallery
    knows gets its label there. Another name keeps its number if that is free,
    and gets a new one otherwise.

    Args:
        gallery: The rows that exist.
        columns: The columns of the new rows.
        is_own: Whether the user has given labels or names as columns, which
            are only checked.
        owner: The function that writes the rows.

    Raises:
        ValueError: If one name has several labels.
    """
    types = gallery.types
    has_classes = types.get(LABEL) == {int} and types.get(NAME) == {str}
    if not has_classes or not {LABEL, NAME} <= set(columns):
        return columns
    pairs = list(zip(columns[LABEL], columns[NAME], strict=True))
    given = sorted({(i, name) for i, name in pairs if None not in (i, name)})
    known = _labels_of(gallery, {name for _, name in given})
    if is_own:
        _check(given, known, owner)
        return columns
    new = {}
    taken = set()
    if not all(known[name] for _, name in given):
        everywhere = _classes(gallery, {LABEL: {"!=": None}})
        taken = {label for label, _ in everywhere}
    fresh = count(1 + max(taken | {label for label, _ in given}, default=-1))
    for label, name in given:
        if len(known[name]) > 1:
            raise ValueError(
                f"`items` of {owner} must have classes with one label each. "
                f"Received: {name!r}, which has the labels "
                f"{sorted(known[name])} in the index. Give its rows one label "
                "with Index.update."
            )
        if known[name]:
            (new[label, name],) = known[name]
        else:
            new[label, name] = next(fresh) if label in taken else label
    labels = [new.get(pair, pair[0]) for pair in pairs]
    return {**columns, LABEL: labels}


def _check(given: Pairs, known: Mapping[str, set[int]], owner: str) -> None:
    """ValueError if a class that has one label is given another."""
    for label, name in given:
        if len(known[name]) == 1 and label not in known[name]:
            (other,) = known[name]
            raise ValueError(
                f"`columns` of {owner} must give a class the label that it has "
                f"in the index. Received: label {label} for the name {name!r}, "
                f"which has label {other} there. Use {other}, or another name."
            )


def _labels_of(gallery: Gallery, names: set[str]) -> dict[str, set[int]]:
    """The labels of class names in the rows of a gallery."""
    labels: dict[str, set[int]] = defaultdict(set)
    for label, name in _classes(gallery, {NAME: sorted(names)}):
        if label is not None:
            labels[name].add(label)
    return labels


def _classes(gallery: Gallery, where: Where) -> Pairs:
    """Label and name of the rows that pass a filter."""
    ids = gallery.where(where)
    if not len(ids):
        return []
    table = gallery.table(ids)
    labels, names = table.columns[LABEL], table.columns[NAME]
    rows = np.searchsorted(table.ids, ids).tolist()
    return [(labels[row], names[row]) for row in rows]
