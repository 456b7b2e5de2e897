"""Names of the package in pages and docstrings exist, and are public."""

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import keras

import keras_dml
from rules.tree import Finding, Tree

NAME = re.compile(r"(?<![\w./-])(?:keras_dml|dml)(?:\.[A-Za-z_]\w*)+")
PRIVATE = re.compile(r"^\s*(?:from|import) +keras_dml[\w.]*\._", re.M)


def check(tree: Tree) -> Iterator[Finding]:
    for path, start, text in written(tree):
        for found in NAME.finditer(text):
            line = start + text.count("\n", 0, found.start())
            if "._" in found[0]:
                yield Finding(path, line, f"{found[0]} is private")
            elif not exists(found[0]):
                yield Finding(path, line, f"there is no {found[0]}")
        for found in PRIVATE.finditer(text):
            line = start + text.count("\n", 0, found.start())
            yield Finding(path, line, "it imports what is private")
    for page in tree.pages:
        for block in tree.blocks(page, "py"):
            yield from of_program(page, block.line, block.code)


def written(tree: Tree) -> Iterator[tuple[Path, int, str]]:
    """Texts, and the files and lines where they begin."""
    for page in tree.pages:
        yield page, 1, tree.text(page)
    for module in tree.modules:
        for line, text in tree.docstrings(module):
            yield module, line, text


@functools.cache
def exists(name: str) -> bool:
    """As after `import keras_dml as dml`; `keras_dml.x` may be a module."""
    first, *rest = name.split(".")
    value: object = keras_dml
    for i, part in enumerate(rest):
        try:
            if first == "keras_dml" and not hasattr(value, part):
                importlib.import_module(".".join(["keras_dml", *rest[: i + 1]]))
            value = getattr(value, part)
        except (ImportError, AttributeError):
            return False
    return value is not None


def of_program(page: Path, line: int, code: str) -> Iterator[Finding]:
    """A program that is not run compiles and names what exists."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError as error:
        yield Finding(page, line + (error.lineno or 1) - 1, "it is no Python")
        return
    for node in nodes:
        if not isinstance(node, ast.Attribute):
            continue
        first, *rest = ast.unparse(node).split(".")
        value: object = {"dml": keras_dml, "keras": keras}.get(first)
        for part in rest if value is not None else ():
            if not hasattr(value, part):
                where = line + node.lineno - 1
                yield Finding(page, where, f"there is no {ast.unparse(node)}")
                break
            value = getattr(value, part)
