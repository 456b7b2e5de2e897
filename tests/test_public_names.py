"""Names of the package that README, docs and docstrings write resolve."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import keras_dml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "keras_dml").rglob("*.py"))
NAME = re.compile(r"(?<![\w./-])(?:keras_dml|dml)(?:\.[A-Za-z_]\w*)+")
DOCUMENTED = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED):
            yield ast.get_docstring(node) or ""


def written_names() -> dict[str, Path]:
    """Every name, and a file that writes it."""
    texts = [(path, path.read_text()) for path in PAGES]
    texts += [(path, text) for path in MODULES for text in docstrings(path)]
    return {name: path for path, text in texts for name in NAME.findall(text)}


NAMES = written_names()


def resolve(name: str) -> object:
    """As after `import keras_dml as dml`; `keras_dml.x` may be a module."""
    first, *rest = name.split(".")
    value: object = keras_dml
    for i, part in enumerate(rest):
        if first == "keras_dml" and not hasattr(value, part):
            importlib.import_module(".".join(["keras_dml", *rest[: i + 1]]))
        value = getattr(value, part)
    return value


def test_names_were_found() -> None:
    assert len(NAMES) > 80
    assert {"dml.MetricModel", "dml.methods.dcml"} <= set(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_resolves_and_is_public(name: str) -> None:
    where = NAMES[name].relative_to(ROOT)
    assert "._" not in name, f"{where} teaches the private {name}"
    assert resolve(name) is not None, where


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_page_imports_what_is_private(page: Path) -> None:
    imports = re.findall(
        r"^\s*(?:from|import) +keras_dml[\w.]*", page.read_text(), flags=re.M
    )
    assert not [line for line in imports if "._" in line]
