"""What each number that is printed means, in a line."""

import re
from collections.abc import Iterable

PAGE = "docs/evaluation.md"

_DEFINITIONS = {
    "recall@k": "share of queries with an image of their class among the k "
    "nearest",
    "precision@1": "the same as recall@1",
    "r_precision": "share of hits among the R nearest, R the number of other "
    "images of the query's class",
    "map@r": "(1/R) Σ_{i≤R} P(i)·rel(i), R the number of other images of the "
    "query's class",
    "map@r_with_self": "as map@r, with R one larger: a perfect model scores "
    "R/(R + 1)",
    "map": "average precision over the whole ranking",
    "map@k": "average precision of the k nearest, over min(k, R)",
    "mrr": "1 / rank of the first hit",
    "minp": "R / rank of the last hit",
    "nmi": "2·I(classes; clusters) / (H(classes) + H(clusters)), with as many "
    "clusters of K-means as classes",
    "ami": "mutual information of classes and clusters, adjusted for chance",
    "f1": "F1 of pairs of images that share a cluster",
    "spectral_decay": "KL of the uniform distribution to the singular values",
    "density": "mean distance within classes / between class means",
}


def definitions(metrics: Iterable[str]) -> list[str]:
    """A line for each metric, with the section that defines it."""
    return [f"{name}: {definition(name)}" for name in metrics]


def definition(metric: str) -> str:
    """What a metric is, and the section that says it exactly."""
    section = section_of(metric)
    anchor = re.sub(r"[^a-z0-9_-]", "", section)
    text = _DEFINITIONS[section]
    if section != metric:
        text = re.sub(r"\bk\b", metric.partition("@")[2], text)
    return f"{text} ({PAGE}#{anchor})"


def section_of(metric: str) -> str:
    """The section of docs/evaluation.md about a metric: one for all k."""
    if metric in _DEFINITIONS:
        return metric
    return re.sub(r"@\d+$", "@k", metric)
