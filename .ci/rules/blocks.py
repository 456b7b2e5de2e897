"""Blocks of code are closed, and say in which language they are."""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree, line_of

KNOWN = ("python", "py", "sh", "yaml", "json", "sql", "text")


def check(tree: Tree) -> Iterator[Finding]:
    for page in tree.pages:
        fences = re.finditer(r"^ *```(.*)", tree.text(page), re.M)
        for i, fence in enumerate(fences):
            if i % 2 == 0 and fence[1] not in KNOWN:
                text = f"the language is {fence[1]!r}, none of {KNOWN}"
                yield Finding(page, line_of(fence), text)
            if i % 2 and fence[1]:
                text = "the block before does not end"
                yield Finding(page, line_of(fence), text)
