"""Definitions of metrics in a line, with the page that says more."""

import re
from collections.abc import Iterable

from keras_dml.evaluation.metrics import metric

PAGE = "docs/evaluation.md"


def definitions(metrics: Iterable[str]) -> list[str]:
    """A line for each metric, with the section that defines it."""
    return [f"{name}: {definition(name)}" for name in metrics]


def definition(name: str) -> str:
    """What a metric is, and the section that says it exactly."""
    found = metric(name)
    if found is None:
        return "a metric that is not registered here"
    if not found.entry.value.__module__.startswith("keras_dml."):
        return found.definition
    anchor = re.sub(r"[^a-z0-9_-]", "", found.entry.name)
    return f"{found.definition} ({PAGE}#{anchor})"
