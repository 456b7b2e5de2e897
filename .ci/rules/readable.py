"""Tables and paragraphs are short: no long cell, no string of numbers."""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree, line_of

CELL, NUMBERS = 90, 3

LATER = ("docs/migration", "docs/papers")
"""Pages of code and of published settings, which are as long as they are."""

TARGET = re.compile(r"(?<=\])\([^)]*\)|<[^>\n]+>")
UNREAD = re.compile(r"`[^`]*`|!\[[^\]]*\]|\b[23]\.\d\d\b")
"""Code, texts of pictures, versions."""
PARAGRAPH = re.compile(
    r"^(?![|#]).+(?:\n(?!\s*(?:[|#-]|\d+\.) )(?=\S| ).+)*", re.M
)
DECIMAL = re.compile(r"(?<![\w.@-])[+−±]?\d+\.\d+(?!\w|\.\d)")


def check(tree: Tree) -> Iterator[Finding]:
    for page in tree.pages:
        name = page.relative_to(tree.root).as_posix()
        if name.startswith(LATER):
            continue
        prose = tree.prose(page)
        for row in re.finditer(r"^\|.*\|$", prose, re.M):
            cells = TARGET.sub("", row[0]).strip("| ")
            for cell in re.split(r" (?<!\\)\| ", cells):
                if len(cell) > CELL:
                    text = f"a cell has {len(cell)} characters"
                    yield Finding(page, line_of(row), text)
        for found in PARAGRAPH.finditer(prose):
            words = UNREAD.sub("", TARGET.sub("", found[0]))
            if (count := len(DECIMAL.findall(words))) > NUMBERS:
                text = f"a paragraph has {count} decimals"
                yield Finding(page, line_of(found), text)
