"""Subspaces: some dimensions of embeddings as embeddings of their own."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from keras_dml.evaluation.inputs import Inputs
from keras_dml.evaluation.results import Results
from keras_dml.utils.lazy_rows import changed
from keras_dml.utils.types import FloatArray

PARTS = "parts"
"""Prefix of the means over the parts."""


def subspaces(
    dim: int, prefixes: Sequence[int] | None, parts: int | None
) -> dict[str, slice]:
    """The groups of dimensions that are measured separately, by name.

    Args:
        dim: Dimensions of the embeddings, D.
        prefixes: Numbers of leading dimensions.
        parts: K consecutive slices of ⌈D / K⌉ dimensions, as for learners.
    """
    found = {str(size): slice(0, size) for size in prefixes or ()}
    size = -(-dim // parts) if parts else 0
    for k, name in enumerate(part_names(parts)):
        found[name] = slice(k * size, (k + 1) * size)
    return found


def part_names(parts: int | None) -> list[str]:
    """Names of the results of each part, counted from 1."""
    return [f"part{k + 1}" for k in range(parts or 0)]


def cut(given: Inputs, dimensions: slice) -> Inputs:
    """Some dimensions of all embeddings."""
    taken = functools.partial(_taken, dimensions=dimensions)
    return [
        replace(images, embeddings=changed(images.embeddings, taken))
        for images in given
    ]


def _taken(x: FloatArray, dimensions: slice) -> FloatArray:
    return np.ascontiguousarray(x[:, dimensions])


def with_subspaces(whole: Results, others: dict[str, Results]) -> Results:
    """Results including those of subspaces, with the names of these as prefix.

    If some are parts, their mean is included as well.
    """
    parts = [x for name, x in others.items() if name.startswith("part")]

    def merged(kind: Callable[[Results], Mapping[str, Any]]) -> dict[str, Any]:
        found = {
            **kind(whole),
            **{
                f"{name}/{metric}": value
                for name, results in others.items()
                for metric, value in kind(results).items()
            },
        }
        for metric in kind(whole) if parts else ():
            found[f"{PARTS}/{metric}"] = np.mean(
                [kind(part)[metric] for part in parts], axis=0
            )
        return found

    values = merged(dict)
    return replace(
        whole,
        _values={name: float(value) for name, value in values.items()},
        per_query=merged(lambda results: results.per_query),
        per_seed=merged(lambda results: results.per_seed),
    )
