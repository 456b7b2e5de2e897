"""Tables in the docs say what the registries say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keras_dml import backbones, data, evaluation, methods
from keras_dml.utils.registry import Entry

DOCS = Path(__file__).parents[1] / "docs"


def paper_of(entry: Entry[Any]) -> str:
    paper = entry.paper
    return "–" if paper is None else f"{paper.authors}, {paper.venue}"


def method_row(entry: Entry[Any]) -> str:
    link = f"[{entry.name}]({entry.name}.md)"
    return f"| {link} | {entry.definition} | {paper_of(entry)} |"


def dataset_row(entry: Entry[Any]) -> str:
    return f"| `{entry.name}` | {entry.definition} | {paper_of(entry)} |"


def backbone_row(entry: Entry[Any]) -> str:
    return f'| `"{entry.name}"` | {entry.definition} | |'


def reranking_row(entry: Entry[Any]) -> str:
    assert entry.paper is not None
    link = f"[{entry.paper.authors}, {entry.paper.venue}]({entry.paper.url})"
    return f"| `{entry.name}` | {entry.definition} | {link} |"


@pytest.mark.parametrize(
    ("page", "registry", "row_of"),
    [
        ("evaluation.md", evaluation.RERANKING, reranking_row),
        ("methods/README.md", methods.METHODS, method_row),
        ("data.md", data.DATASETS, dataset_row),
        ("backbones.md", backbones.BACKBONES, backbone_row),
    ],
)
def test_every_entry_has_its_row(
    page: str, registry: Any, row_of: Callable[[Entry[Any]], str]
) -> None:
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    rows = [row_of(entry) for entry in registry.values()]
    missing = [row for row in rows if row not in lines]
    assert not missing, f"Put into the table of {page}: {missing}"


def test_methods_in_the_table_are_registered() -> None:
    text = (DOCS / "methods" / "README.md").read_text(encoding="utf-8")
    names = {
        line.split("](")[0].removeprefix("| [")
        for line in text.splitlines()
        if line.startswith("| [")
    }
    assert names == set(methods.METHODS)


def test_every_method_has_its_cost() -> None:
    text = (DOCS / "methods" / "README.md").read_text(encoding="utf-8")
    rows = text.partition("| method | step, ms |")[2].splitlines()
    names = {line.split(" | ")[0].removeprefix("| ") for line in rows}
    missing = set(methods.METHODS) - names
    assert not missing, f"tests/benchmarks/methods.py measures {missing}"
