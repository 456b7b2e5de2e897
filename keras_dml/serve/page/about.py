"""About: what the page needs to know of what is served."""

from collections.abc import Sequence
from typing import Any

from keras_dml.reports.search_page import SCORES
from keras_dml.search import Index
from keras_dml.serve.current import Current
from keras_dml.serve.settings import Settings

DEFAULT_K = 12
MOST_K = 1000
"""A request must not be able to ask for an answer of gigabytes."""

MOST_VALUES = 500
"""Distinct texts of a column that the page suggests, at most."""

_KINDS = {str: "text", int: "number", float: "number", bool: "boolean"}

_HIDDEN = ("thumbnail", "box")
"""Columns that nobody filters by."""


def about(current: Current, settings: Settings) -> dict[str, Any]:
    """What is served, ready for JSON."""
    outputs, index = current.outputs, current.index
    return {
        "model": {"name": current.name, "version": current.version},
        "refusal": refusal(current),
        "parts": [part.name for part in outputs.parts] if outputs else [],
        # Slices of one length, by which scores are cosines.
        "parts_are_cosines": outputs is not None
        and all(part.length for part in outputs.parts),
        "has_attention": outputs is not None and outputs.has_attention,
        "gallery": None if index is None else _gallery(current, index),
        "k": {"default": DEFAULT_K, "most": MOST_K},
        "max_body": settings.max_body,
    }


def refusal(current: Current) -> str | None:
    """Why the page cannot search for a picture; None if it can."""
    address = f"/v1/models/{current.name}"
    if current.model is None:
        return (
            f"Only an export of {current.name!r} is served, which does not "
            "provide the attention maps and learners that this page shows. "
            "Start the server with the run, or with --gallery and an index "
            f"that contains the model; programs can use {address}:predict."
        )
    if current.view is None:
        return (
            f"The model {current.name!r} does not take pictures. Send its "
            f"inputs to {address}:predict; {address}/metadata describes them."
        )
    return None


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
                "values": _texts(columns.get(name, ()), kind),
            }
            for name, kind in _columns(index)
        ],
    }


def _columns(index: Index) -> list[tuple[str, str]]:
    """Columns that a filter can compare, with the kind of their values."""
    found = []
    for name, types in index.types.items():
        kinds = {_KINDS.get(x, "") for x in types}
        if name not in _HIDDEN and len(kinds) == 1 and "" not in kinds:
            found.append((name, kinds.pop()))
    return found


def _texts(column: Sequence[Any], kind: str) -> list[str]:
    """The distinct texts of a column, if they are few."""
    distinct = set(column) - {None} if kind == "text" else set()
    return sorted(distinct) if len(distinct) <= MOST_VALUES else []
