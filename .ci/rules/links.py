"""Links lead somewhere, for readers of the repository and of a wheel alike.

Every page is in the menu; recipes name no file that a wheel does not have.
"""

import re
from collections.abc import Iterator

import yaml

from rules.tree import Finding, Tree, line_of

LINK = re.compile(r"\]\(([^)#:]+)\)")
OUTSIDE = re.compile(r"\b(?:docs|tests|keras_dml)/[\w/.]+")


def check(tree: Tree) -> Iterator[Finding]:
    for page in tree.pages:
        for link in LINK.finditer(tree.prose(page)):
            if not (page.parent / link[1]).exists():
                yield Finding(page, line_of(link), f"there is no {link[1]}")
    for notebook in tree.notebooks:
        for cell in tree.cells(notebook, "markdown"):
            for link in LINK.findall("".join(cell["source"])):
                if not (notebook.parent / link).exists():
                    yield Finding(notebook, 1, f"there is no {link}")
    for recipe in sorted((tree.root / "recipes").rglob("*.yaml")):
        for name in OUTSIDE.finditer(tree.text(recipe)):
            yield Finding(recipe, line_of(name), f"a wheel has no {name[0]}")
    yield from menu(tree)
    yield from overviews(tree)


def menu(tree: Tree) -> Iterator[Finding]:
    config = tree.docs / "site" / "mkdocs.yml"
    listed = list(pages(yaml.safe_load(tree.text(config))["nav"]))
    files = [*tree.docs.rglob("*.md"), *tree.docs.rglob("*.ipynb")]
    for path in files:
        name = path.relative_to(tree.docs).as_posix()
        if (count := listed.count(name)) != 1:
            yield Finding(config, 1, f"{name} is {count} times in the menu")


def pages(entry: object) -> Iterator[str]:
    """The pages of an entry of the menu."""
    if isinstance(entry, str):
        yield entry
    else:
        parts = entry.values() if isinstance(entry, dict) else entry
        for part in parts:
            yield from pages(part)


def overviews(tree: Tree) -> Iterator[Finding]:
    """READMEs of folders name every page beside them."""
    for folder, kind in (
        ("commands", "*.md"),
        ("methods", "*.md"),
        ("migration", "*.md"),
        ("notebooks", "*.ipynb"),
    ):
        overview = tree.docs / folder / "README.md"
        for page in sorted((tree.docs / folder).glob(kind)):
            is_named = f"({page.name}" in tree.text(overview)
            if page != overview and not is_named:
                yield Finding(overview, 1, f"it does not link {page.name}")
