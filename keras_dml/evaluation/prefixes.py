"""Prefixes: the first dimensions of embeddings as embeddings themselves."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from keras_dml.evaluation.inputs import Inputs
from keras_dml.evaluation.results import Results
from keras_dml.utils.stored import changed
from keras_dml.utils.types import FloatArray


def cut(given: Inputs, size: int) -> Inputs:
    """The first dimensions of all embeddings."""
    first = functools.partial(_first_dimensions, size=size)
    return [
        replace(images, embeddings=changed(images.embeddings, first))
        for images in given
    ]


def _first_dimensions(x: FloatArray, size: int) -> FloatArray:
    return np.ascontiguousarray(x[:, :size])


def with_prefixes(whole: Results, parts: dict[int, Results]) -> Results:
    """Results, with those of prefixes, whose names start with their sizes."""

    def merged(kind: Callable[[Results], Mapping[str, Any]]) -> dict[str, Any]:
        return {
            **kind(whole),
            **{
                f"{size}/{name}": value
                for size, results in parts.items()
                for name, value in kind(results).items()
            },
        }

    return replace(
        whole,
        _values=merged(dict),
        per_query=merged(lambda results: results.per_query),
        per_seed=merged(lambda results: results.per_seed),
    )
