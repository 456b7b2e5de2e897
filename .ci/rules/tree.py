"""What all rules read: the files of a checkout, each read and parsed once."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

CODE_BLOCK = re.compile(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", re.M | re.S)


class Finding(NamedTuple):
    path: Path
    line: int
    text: str


class Block(NamedTuple):
    """A block of code of a page."""

    line: int
    language: str
    code: str


class Tree:
    """A checkout, or a folder that is like one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.docs = root / "docs"
        self._texts: dict[Path, str] = {}
        self._code: dict[Path, ast.Module] = {}

    @cached_property
    def pages(self) -> list[Path]:
        return [self.root / "README.md", *sorted(self.docs.rglob("*.md"))]

    @cached_property
    def notebooks(self) -> list[Path]:
        return sorted((self.docs / "notebooks").glob("*.ipynb"))

    @cached_property
    def modules(self) -> list[Path]:
        """Those of the package."""
        return sorted((self.root / "keras_dml").rglob("*.py"))

    @cached_property
    def tests(self) -> list[Path]:
        return sorted((self.root / "tests").rglob("*.py"))

    def text(self, path: Path) -> str:
        if path not in self._texts:
            self._texts[path] = path.read_text(encoding="utf-8")
        return self._texts[path]

    def code(self, path: Path) -> ast.Module:
        if path not in self._code:
            self._code[path] = ast.parse(self.text(path))
        return self._code[path]

    def cells(self, notebook: Path, kind: str) -> list[dict[str, Any]]:
        cells = json.loads(self.text(notebook))["cells"]
        return [cell for cell in cells if cell["cell_type"] == kind]

    def prose(self, page: Path) -> str:
        """A page of which blocks of code are empty lines."""
        return CODE_BLOCK.sub(
            lambda x: "\n" * x[0].count("\n"), self.text(page)
        )

    def blocks(
        self, page: Path, *languages: str, mark: str = ""
    ) -> Iterator[Block]:
        """Blocks of some languages; with `mark`, those below `<!--mark-->`."""
        comment = f"<!--{mark}-->\n" if mark else ""
        pattern = rf"^{comment}```({'|'.join(languages)})\n(.*?)^```"
        for x in re.finditer(pattern, self.text(page), re.M | re.S):
            yield Block(line_of(x, 2), x[1], x[2])

    def docstrings(self, module: Path) -> Iterator[tuple[int, str]]:
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        for node in ast.walk(self.code(module)):
            if isinstance(node, kinds | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield node.body[0].lineno, text


def line_of(found: re.Match[str], group: int = 0) -> int:
    """The line, from 1, where a match begins."""
    return found.string.count("\n", 0, found.start(group)) + 1
