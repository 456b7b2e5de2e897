"""What docs/fidelity.md cites exists: code, tests, and settings."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from keras_dml.recipes.files import load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fidelity.md"
CODE_TABLE = ["paper", "code", "tests", "differences", "source"]
SETTINGS_TABLE = ["setting", "recipe", "value", "differences", "source"]
OF_A_RELEASE = re.compile(r"\breleased?\b|authors'|README|sample runs")
COMMIT = r"[\w.-]+/[\w.-]+@[0-9a-f]{7}"


def rows(header: list[str]) -> list[list[str]]:
    """Cells of every row of all tables with this header."""
    found, within = [], False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells == header:
            within = True
        elif not line.startswith("|"):
            within = False
        elif within and not set(line) <= set("|- "):
            found.append(cells)
    return found


def cited(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


CODE_ROWS = rows(CODE_TABLE)
SETTINGS_ROWS = rows(SETTINGS_TABLE)
CODE = sorted({name for row in CODE_ROWS for name in cited(row[1])})
TESTS = sorted(set(re.findall(r"`([\w/]+\.py::\w+)`", PAGE.read_text())))


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
    if not callable(value):
        return set()
    return set(inspect.signature(value).parameters)


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}


def test_the_page_was_read() -> None:
    assert len(CODE_ROWS) > 100
    assert len(SETTINGS_ROWS) > 20
    assert all(len(row) == 5 for row in CODE_ROWS + SETTINGS_ROWS)
    papers = re.findall(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    assert len(papers) >= 8


@pytest.mark.parametrize("name", CODE)
def test_code_exists(name: str) -> None:
    match = re.fullmatch(r"([\w.]+)(?:\((\w+)\))?", name)
    assert match
    found = objects(match[1])
    assert found
    if match[2]:
        assert any(match[2] in parameters(value) for value in found)


@pytest.mark.parametrize("name", TESTS)
def test_test_exists(name: str) -> None:
    file, function = name.split("::")
    assert function.startswith("test_")
    assert function in functions_of(file)


def test_every_row_has_a_test_or_says_why_not() -> None:
    for paper, code, tests, differences, _ in CODE_ROWS:
        assert cited(code), paper
        assert cited(tests) or (tests == "–" and differences), paper
        assert all("::" in name for name in cited(tests)), paper


def test_what_is_released_has_a_repository_and_a_commit() -> None:
    before = [""]
    for row in CODE_ROWS + SETTINGS_ROWS:
        *cells, source = row
        # A row that says "the same" has what that before it has.
        is_same = cells[-1].startswith("the same") and bool(before[-1])
        if is_same or OF_A_RELEASE.search(" ".join(cells)):
            assert re.fullmatch(rf"{COMMIT}(, {COMMIT})*", source), row
        else:
            assert not source, row
        before = row


@pytest.mark.parametrize(
    "row", SETTINGS_ROWS, ids=[f"{x[1]} {x[0]}" for x in SETTINGS_ROWS]
)
def test_recipes_have_the_settings(row: list[str]) -> None:
    (path,) = cited(row[1])
    recipe = load(ROOT / path)
    assert cited(row[2])
    for setting in cited(row[2]):
        key, text = setting.split(" = ")
        value: Any = recipe
        for part in key.split("."):
            value = (
                value[part] if isinstance(value, dict) else getattr(value, part)
            )
        expected = yaml.safe_load(text)
        if isinstance(expected, list):
            value = list(value)
        assert value == expected, setting
