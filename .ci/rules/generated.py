"""Charts, tables and pages are those that their programs make."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from rules.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for program, made in (
        ("tables", tables(tree)),
        ("charts", charts(tree)),
        ("leaderboards", leaderboards(tree)),
        ("papers", run(tree, "papers")["written"](tree.docs)),
        ("commands", run(tree, "commands")["written"]()),
    ):
        for path, text in made.items():
            before = tree.text(path) if path.exists() else ""
            if path.suffix == ".svg":  # Where words are depends on fonts.
                before, text = map(words, (before, text))
            if before != text:
                line = first_difference(before, text)
                yield Finding(path, line, f"run docs/site/{program}.py")
    yield from links_to_journals(tree)


def words(svg: str) -> str:
    return "\n".join(re.findall(r"<text.*?>(.*?)</text>", svg))


def run(tree: Tree, program: str) -> dict:
    return runpy.run_path(str(tree.docs / "site" / f"{program}.py"))


def tables(tree: Tree) -> dict[Path, str]:
    return run(tree, "tables")["Tables"](tree.docs).written()


def charts(tree: Tree) -> dict[Path, str]:
    program = run(tree, "charts")
    return {
        tree.docs / "images" / file: program["svg"](chart)
        for file, chart in program["drawn"]().items()
    }


def leaderboards(tree: Tree) -> dict[Path, str]:
    """Made again from what every run of the benchmark reached."""
    program = run(tree, "leaderboards")
    return {x: program["written"](tree.text(x)) for x in program["PAGES"]}


def links_to_journals(tree: Tree) -> Iterator[Finding]:
    folder = tree.docs / "results"
    pages = sorted(folder.glob("leaderboard*.md"))
    linked = {
        name
        for page in pages
        for name in re.findall(r"\(journals/(\S+)\)", tree.text(page))
    }
    for path in sorted((folder / "journals").iterdir()):
        if path.name not in linked:
            yield Finding(path, 1, "no leaderboard links it")


def first_difference(before: str, after: str) -> int:
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    pairs = enumerate(lines, start=1)
    return next((i for i, (old, new) in pairs if old != new), 1)
