"""What docs/papers/README.md cites exists: code, tests, settings of recipes."""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from keras_dml.recipes.files import load
from rules.tree import Finding, Tree

CODE = ["paper", "code", "tests", "differences", "source"]
SETTINGS = ["setting", "recipe", "value", "differences", "source"]
OF_A_RELEASE = re.compile(r"\breleased?\b|authors'|README|sample runs")
COMMIT = r"[\w.-]+/[\w.-]+@[0-9a-f]{7}"


class Row(NamedTuple):
    line: int
    kind: list[str]
    cells: list[str]


def check(tree: Tree) -> Iterator[Finding]:
    page = tree.docs / "papers" / "README.md"
    before = ""
    for row in rows(tree.text(page)):
        if len(row.cells) != 5:
            yield Finding(page, row.line, "the row has not five cells")
            continue
        faults = [*of_source(row.cells, before)]
        faults += of_code(row.cells) if row.kind == CODE else ()
        if row.kind == SETTINGS:
            faults += of_settings(tree.root, row.cells)
        for text in faults:
            yield Finding(page, row.line, text)
        before = row.cells[-1]
    for line, text in enumerate(tree.text(page).splitlines(), start=1):
        for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", text):
            if not has_test(tree, tree.root / "tests" / file, name):
                yield Finding(page, line, f"there is no test {file}::{name}")


def rows(text: str) -> Iterator[Row]:
    """Those of all tables with one of the two headers."""
    kind: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells in (CODE, SETTINGS):
            kind = cells
        elif not line.startswith("|"):
            kind = []
        elif kind and not set(line) <= set("|- "):
            yield Row(number, kind, cells)


def cited(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def of_source(cells: list[str], before: str) -> Iterator[str]:
    """What is released has a repository and a commit."""
    *said, source = cells
    # A row that says "the same" has what that before it has.
    is_same = said[-1].startswith("the same") and bool(before)
    if is_same or OF_A_RELEASE.search(" ".join(said)):
        if not re.fullmatch(rf"{COMMIT}(, {COMMIT})*", source):
            yield "the source is not owner/name@commit"
    elif source:
        yield "it has a source and names no release"


def of_code(cells: list[str]) -> Iterator[str]:
    _, code, tests, differences, _ = cells
    if not cited(code):
        yield "it cites no code"
    for name in cited(code):
        found = re.fullmatch(r"([\w.]+)(?:\((\w+)\))?", name)
        values = objects(found[1]) if found else []
        argument = found[2] if found else None
        if not values:
            yield f"there is no {name}"
        elif argument and not any(argument in parameters(x) for x in values):
            yield f"{name} has no argument {argument}"
    if not cited(tests) and not (tests == "–" and differences):
        yield "it has neither a test nor says why not"
    for name in cited(tests):
        if "::test_" not in name:
            yield f"{name} is not file.py::test_name"


def objects(name: str) -> list[Any]:
    """What a dotted name stands for: `methods.abe` is a module, too."""
    found = []
    parts = ["keras_dml", *name.split(".")]
    for i in range(1, len(parts) + 1):
        try:
            value: Any = importlib.import_module(".".join(parts[:i]))
            for attribute in parts[i:]:
                value = getattr(value, attribute)
        except (ImportError, AttributeError):
            continue
        found.append(value)
    return found


def parameters(value: Any) -> set[str]:
    return (
        set(inspect.signature(value).parameters) if callable(value) else set()
    )


def has_test(tree: Tree, path: Path, name: str) -> bool:
    functions = tree.code(path).body if path.exists() else ()
    return any(
        isinstance(x, ast.FunctionDef) and x.name == name for x in functions
    )


recipe = functools.cache(load)


def of_settings(root: Path, cells: list[str]) -> Iterator[str]:
    (path,) = cited(cells[1])
    if not cited(cells[2]):
        yield "it cites no setting"
    for setting in cited(cells[2]):
        key, text = setting.split(" = ")
        value: Any = recipe(root / path)
        for part in key.split("."):
            value = (
                value[part] if isinstance(value, dict) else getattr(value, part)
            )
        expected = yaml.safe_load(text)
        if isinstance(expected, list):
            value = list(value)
        if value != expected:
            yield f"{path} has {key} = {value}, not {expected}"
