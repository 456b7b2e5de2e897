"""Pictures are small; every method has a drawing, which follows the theme."""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for path in sorted(tree.docs.glob("images/*")):
        if path.is_file() and path.stat().st_size >= 200_000:
            yield Finding(path, 1, "it has over 200 kB")
    for path in sorted(tree.docs.glob("images/methods/*.svg")):
        text = tree.text(path)
        if len(text) >= 30_000:
            yield Finding(path, 1, "it has over 30 kB")
        for part in ("<title>", "prefers-color-scheme:dark"):
            if part not in text:
                yield Finding(path, 1, f"it has no {part}")
    for page in sorted(tree.docs.glob("methods/*.md")):
        text = tree.text(page)
        drawing = rf"!\[(.+)\]\(../images/methods/{page.stem}.svg\)"
        found = re.search(drawing, text)
        is_method = "\n| at a glance |" in text
        if is_method and (found is None or len(found[1]) <= 40):
            yield Finding(page, 1, "it has no drawing that is described")
