"""Tables and paragraphs are short: no long cell, no string of numbers."""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree, line_of

CELL, NUMBERS = 90, 3

LATER = (
    "README.md", "docs/commands", "docs/concepts", "docs/guides",
    "docs/losses", "docs/migration", "docs/papers",
    "docs/project/contributing.md", "docs/reference", "docs/start",
)  # fmt: skip
"""What has still to become so; options in docs/commands repeat their help."""

TARGET = re.compile(r"(?<=\])\([^)]*\)|<[^>\n]+>")
PARAGRAPH = re.compile(
    r"^(?![|#]).+(?:\n(?!\s*(?:[|#-]|\d+\.) )(?=\S| ).+)*", re.M
)
DECIMAL = re.compile(r"(?<![\w.@-])[+−±]?\d+\.\d+(?![\w.])")


def check(tree: Tree) -> Iterator[Finding]:
    for page in tree.pages:
        name = page.relative_to(tree.root).as_posix()
        if name.startswith(LATER) and page.stem != "choosing":
            continue
        prose = tree.prose(page)
        for row in re.finditer(r"^\|.*\|$", prose, re.M):
            for cell in re.split(r" (?<!\\)\| ", TARGET.sub("", row[0])):
                if len(cell) > CELL:
                    text = f"a cell has {len(cell)} characters"
                    yield Finding(page, line_of(row), text)
        for found in PARAGRAPH.finditer(prose):
            words = re.sub(r"`[^`]*`", "", TARGET.sub("", found[0]))
            if (count := len(DECIMAL.findall(words))) > NUMBERS:
                text = f"a paragraph has {count} decimals"
                yield Finding(page, line_of(found), text)
