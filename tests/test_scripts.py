"""What users would write: short scripts with public names only."""

import ast
import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_runs(path: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_is_short_and_public(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 40
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("keras_dml.")
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
