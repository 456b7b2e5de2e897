"""Tables and paragraphs are short: no long cell, no string of numbers."""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree, line_of

CELL, NUMBERS = 90, 3

LATER = (
    "README.md", "docs/guides/report.md", "docs/guides/troubleshooting.md",
    "docs/losses", "docs/methods/losses_as_methods.md", "docs/migration",
    "docs/papers", "docs/reference/README.md", "docs/start/text.md",
)  # fmt: skip
"""What has still to become so."""

TARGET = re.compile(r"(?<=\])\([^)]*\)|<[^>\n]+>")
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
            words = re.sub(r"`[^`]*`", "", TARGET.sub("", found[0]))
            if (count := len(DECIMAL.findall(words))) > NUMBERS:
                text = f"a paragraph has {count} decimals"
                yield Finding(page, line_of(found), text)
