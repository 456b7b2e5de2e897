"""Every import points down: which part of the package may use which."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "keras_dml"

# From the bottom to the top. A part imports itself and what stands below.
LAYERS = (
    ("utils",),
    ("pools",),
    ("data", "layers"),
    ("losses", "distribution"),
    ("resuming",),
    ("model", "optimizers"),
    ("backbones",),
    ("embedding",),
    ("methods", "evaluation"),
    ("search", "export", "visualization"),
    ("callbacks",),
    ("recipes",),
    ("runs",),
    ("reports", "hub"),
    ("serve",),
    ("__init__",),  # Of the package itself.
    ("cli",),
)
LEVEL = {part: i for i, layer in enumerate(LAYERS) for part in layer}
# Below, and still none of their business.
FORBIDDEN = {("methods", "data"), ("losses", "data")}


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def parts_used(path: Path) -> set[str]:
    """Parts of the package that a file imports, wherever in the file."""
    names = [
        name.split(".")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
    ]
    return {
        "".join(parts[1:2]) or "__init__"
        for parts in names
        if parts[0] == "keras_dml"
    }


FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_down(path) -> None:
    part = path.parts[0].removesuffix(".py")
    for used in parts_used(PACKAGE / path) - {part}:
        assert LEVEL[used] < LEVEL[part], f"{part} uses {used}"
        assert (part, used) not in FORBIDDEN, f"{part} uses {used}"
