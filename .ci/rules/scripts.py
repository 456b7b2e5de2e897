"""Scripts of tests are what users write: short, with public names only."""

import ast
from collections.abc import Iterator

from rules.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for path in sorted((tree.root / "tests" / "scripts").glob("*.py")):
        if tree.text(path).count("\n") > 40:
            yield Finding(path, 41, "it has over 40 lines")
        for node in ast.walk(tree.code(path)):
            module = isinstance(node, ast.ImportFrom) and node.module
            if module and module.startswith("keras_dml."):
                yield Finding(path, node.lineno, f"it imports from {module}")
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                yield Finding(path, node.lineno, f"{node.attr} is private")
