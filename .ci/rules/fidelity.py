"""What papers.yaml cites exists: code, tests, settings of recipes."""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from keras_dml.recipes.files import load
from rules.tree import Finding, Tree

OF_A_RELEASE = re.compile(r"\breleased?\b|authors'|README|sample runs")
COMMIT = r"[\w.-]+/[\w.-]+@[0-9a-f]{7}"

Row = dict[str, Any]


def check(tree: Tree) -> Iterator[Finding]:
    file = tree.docs / "papers" / "papers.yaml"
    for paper in yaml.safe_load(tree.text(file)):
        faults = [*of_source(paper)]
        for row in paper["equations"]:
            faults += [*of_code(row), *of_tests(tree, row)]
        for row in paper.get("settings", ()):
            faults += of_settings(tree.root / "recipes" / row["recipe"], row)
        for text in faults:
            yield Finding(file, 1, f"{paper['paper']}: {text}")


def of_source(paper: Row) -> Iterator[str]:
    """What is released has a repository and a commit."""
    rows = [*paper["equations"], *paper.get("settings", ())]
    is_compared = any(OF_A_RELEASE.search(str(row)) for row in rows)
    is_named = re.fullmatch(COMMIT, paper.get("released", "")) is not None
    if is_compared != is_named:
        yield "`released` is not owner/name@commit, or no row refers to it"


def of_code(row: Row) -> Iterator[str]:
    if not row["code"]:
        yield f"{row['what']} cites no code"
    for cited in row["code"]:
        name, _, argument = cited.rstrip(")").partition("(")
        values = objects(name)
        if not values:
            yield f"there is no {cited}"
        elif argument and not any(argument in parameters(x) for x in values):
            yield f"{name} has no argument {argument}"


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


def of_tests(tree: Tree, row: Row) -> Iterator[str]:
    tests = row.get("tests", ())
    if not tests and "differs" not in row:
        yield f"{row['what']} has neither a test nor says why not"
    for test in tests:
        file, _, name = test.partition("::")
        path = tree.root / "tests" / file
        functions = tree.code(path).body if path.is_file() else ()
        if not name.startswith("test_") or not any(
            isinstance(x, ast.FunctionDef) and x.name == name for x in functions
        ):
            yield f"there is no test {test}"


recipe = functools.cache(load)


def of_settings(path: Path, row: Row) -> Iterator[str]:
    if not row["values"]:
        yield f"{row['what']} cites no setting"
    for key, expected in row["values"].items():
        value: Any = recipe(path)
        for part in key.split("."):
            value = (
                value[part] if isinstance(value, dict) else getattr(value, part)
            )
        if isinstance(expected, list):
            value = list(value)
        if value != expected:
            yield f"{path.name} has {key} = {value}, not {expected}"
