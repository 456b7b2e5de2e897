"""Writes docs/papers/README.md from papers.yaml: `python docs/site/papers.py`.

It shows what differs from each paper. Code, tests and recipes are folded.
`.ci/lint` fails where the page is not that of the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Row = dict[str, Any]

HEAD = """# Fidelity to the papers

What differs from the papers: {different} of {rows} equations, figures and
settings. Where the code does each, and which test checks it, is folded.

- Tests compare with NumPy in float64, or with another library, and gradients
  with central differences; never with the formula under test.
- Recipes have not been run on the papers' data here: an entry says what is
  computed, not that a result was reproduced.
- "Released" refers to the authors' code at the linked commit.
- Paths of tests begin in `tests/`, of recipes in `recipes/`, and names of code
  in `keras_dml`."""

FOLDED = """<details markdown="1">
<summary>{count} entries with code, tests and recipes</summary>

{entries}

</details>"""


def page(papers: list[Row]) -> str:
    every = [row for paper in papers for row in rows(paper)]
    different = sum("differs" in row for row in every)
    head = HEAD.format(rows=len(every), different=different)
    return "\n\n".join([head, *map(section, papers)]) + "\n"


def rows(paper: Row) -> list[Row]:
    return [*paper["equations"], *paper.get("settings", ())]


def section(paper: Row) -> str:
    every = rows(paper)
    name, _, authors = paper["paper"].removesuffix(")").partition(" (")
    parts = [f"## {name}", " · ".join(filter(None, [authors, *links(paper)]))]
    parts.append(paper.get("about", ""))
    parts.append(
        "\n".join(
            f"- **{row['what']}**: {row['differs']}."
            for row in every
            if "differs" in row
        )
    )
    entries = "\n".join(map(entry, every))
    parts.append(FOLDED.format(count=len(every), entries=entries))
    return "\n\n".join(filter(None, parts))


def links(paper: Row) -> Iterator[str]:
    if page := paper.get("page"):
        yield f"[method](../methods/{page})"
    if released := paper.get("released"):
        repository, commit = released.split("@")
        address = f"https://github.com/{repository}/tree/{commit}"
        yield f"[released code]({address})"


def entry(row: Row) -> str:
    """A row with what it cites, each on a line of its own."""
    note = f": {row['note']}" if "note" in row else ""
    return "\n".join(
        [f"- {row['what']}{note}", *map("    - {}".format, cited(row))]
    )


def cited(row: Row) -> Iterator[str]:
    if "recipe" in row:
        yield f"`{row['recipe']}`"
        for key, value in row["values"].items():
            yield f"`{key}: {flow(value)}`"
    else:
        yield ", ".join(f"`{name}`" for name in row["code"])
        for test in row.get("tests", ()):
            yield f"`{test}`"


def flow(value: object) -> str:
    """A value as a recipe has it."""
    text = yaml.safe_dump(
        value, default_flow_style=True, width=1000, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def written() -> dict[Path, str]:
    """The page as it should be."""
    folder = Path(__file__).parents[1] / "papers"
    text = (folder / "papers.yaml").read_text(encoding="utf-8")
    return {folder / "README.md": page(yaml.safe_load(text))}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
