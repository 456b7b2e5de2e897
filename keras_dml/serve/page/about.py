"""About: what the page needs to know of what is served."""

from collections.abc import Sequence
from typing import Any

from keras_dml.reports.search_page import SCORES
from keras_dml.search import Index
from keras_dml.serve.current import Current
from keras_dml.serve.settings import Settings

DEFAULT_K = 12
MAX_K = 1000
"""A request must not be able to ask for an answer of gigabytes."""

MAX_VALUES = 500
"""Distinct texts of a column that the page suggests, at most."""

_KINDS = {str: "text", int: "number", float: "number", bool: "boolean"}

_HIDDEN = ("thumbnail", "box")
"""Columns that nobody filters by."""


def about(current: Current, settings: Settings) -> dict[str, Any]:
    """What is served, ready for JSON."""
    index = current.index
    return {
        "model": current.name,
        "version": current.version,
        "refusal": refusal(current),
        "gallery": None if index is None else _gallery(current, index),
        "k": {"default": DEFAULT_K, "max": MAX_K},
        "max_body": settings.max_body,
    }


def refusal(current: Current) -> str | None:
    """Why the page cannot search for a picture; None if it can."""
    if current.viewer is not None:
        return None
    return (
        f"The model {current.name!r} does not take pictures. Send its inputs "
        f"to /v1/models/{current.name}:predict."
    )


def _gallery(current: Current, index: Index) -> dict[str, Any]:
    negatives, threshold = current.negatives, index.threshold
    columns = index.columns
    return {
        "rows": len(index),
        "scores": SCORES[index.metric],
        "negative_pairs": 0 if negatives is None else len(negatives),
        "threshold": None if threshold is None else float(threshold.value),
        "threshold_meaning": None if threshold is None else threshold.meaning,
        "columns": [
            {
                "name": name,
                "kind": kind,
                "values": _distinct_texts(columns[name], kind),
            }
            for name, kind in _columns(index)
        ],
    }


def _columns(index: Index) -> list[tuple[str, str]]:
    """Columns that a filter can compare, with the kind of their values."""
    comparable = []
    for name, types in index.types.items():
        kinds = {_KINDS.get(x, "") for x in types}
        if name not in _HIDDEN and len(kinds) == 1 and "" not in kinds:
            comparable.append((name, kinds.pop()))
    return comparable


def _distinct_texts(column: Sequence[Any], kind: str) -> list[str]:
    """The distinct texts of a column, if they are few."""
    distinct = set(column) - {None} if kind == "text" else set()
    return sorted(distinct) if len(distinct) <= MAX_VALUES else []
