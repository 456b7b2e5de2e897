"""Tables of the docs have a row for every entry of their registry."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from keras_dml import backbones, data, evaluation, methods
from keras_dml.utils.registry import Entry
from rules.tree import Finding, Tree


def paper_of(entry: Entry[Any]) -> str:
    paper = entry.paper
    return "–" if paper is None else f"{paper.authors}, {paper.venue}"


def method(entry: Entry[Any]) -> str:
    link = f"[{entry.name}]({entry.name}.md)"
    return f"| {link} | {entry.definition} | {paper_of(entry)} |"


def dataset(entry: Entry[Any]) -> str:
    return f"| `{entry.name}` | {entry.definition} | {paper_of(entry)} |"


def backbone(entry: Entry[Any]) -> str:
    return f'| `"{entry.name}"` | {entry.definition} | |'


def reranking(entry: Entry[Any]) -> str:
    paper = entry.paper
    link = f"[{paper.authors}, {paper.venue}]({paper.url})" if paper else "–"
    return f"| `{entry.name}` | {entry.definition} | {link} |"


TABLES: dict[str, tuple[Any, Callable[[Entry[Any]], str]]] = {
    "reference/evaluation.md": (evaluation.RERANKING, reranking),
    "methods/README.md": (methods.METHODS, method),
    "reference/data.md": (data.DATASETS, dataset),
    "reference/backbones.md": (backbones.BACKBONES, backbone),
}


def check(tree: Tree) -> Iterator[Finding]:
    for name, (registry, row_of) in TABLES.items():
        page = tree.docs / name
        lines = tree.text(page).splitlines()
        for entry in registry.values():
            if row_of(entry) not in lines:
                yield Finding(page, 1, f"there is no row {row_of(entry)}")
    page = tree.docs / "methods" / "README.md"
    overview = tree.text(page).partition("\n| method | step, ms |")[0]
    known = set(methods.METHODS)
    for name in set(re.findall(r"^\| \[(\w+)\]\(", overview, re.M)) - known:
        yield Finding(page, 1, f"there is no method {name}")
