"""Pages, numbers and charts are those that their programs write."""

import re
import runpy
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from rules.tree import Finding, Tree

SOURCED = re.compile(r"\[[^\]]*\]\([^)]*\)|<!-- .*\n\n(?:\|.*\n)+")


def check(tree: Tree) -> Iterator[Finding]:
    for program in run(tree, "generate")["PROGRAMS"]:
        for path, text in run(tree, program)["written"]().items():
            before = tree.text(path) if path.exists() else ""
            if before != text:
                line = first_difference(before, text)
                yield Finding(path, line, "run docs/site/generate.py")
    pages = sorted((tree.docs / "results").glob("*.md"))
    texts = {page: tree.text(page) for page in pages}
    for page, text in texts.items():
        rest = SOURCED.sub(lambda x: "\n" * x[0].count("\n"), text)
        for number, line in enumerate(rest.splitlines(), start=1):
            if re.search(r"\b0\.\d{3}", line):
                text = "a number has no link that names it in its title"
                yield Finding(page, number, text)
    for path in sorted((tree.docs / "results" / "journals").iterdir()):
        if not any(f"(journals/{path.name})" in x for x in texts.values()):
            yield Finding(path, 1, "no page links it")


def run(tree: Tree, program: str) -> dict[str, Any]:
    """The names that a program of the checkout's docs/site defines."""
    site = str(tree.docs / "site")
    with mock.patch.object(sys, "path", [site, *sys.path]):
        return runpy.run_path(f"{site}/{program}.py")


def first_difference(before: str, after: str) -> int:
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    pairs = enumerate(lines, start=1)
    return next((i for i, (old, new) in pairs if old != new), 1)
