"""Writes tables and charts of measurements: `python docs/site/tables.py`.

What is generated: a table below `<!-- board … -->` or `<!-- results -->`; the
text of a link to a file of numbers, whose title says which; the table "at a
glance" of a method; the charts and differences.csv.
`.ci/lint` fails where a file is not what this writes.
"""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

import charts
import numpy as np
from results import (
    METHODS,
    Number,
    Row,
    difference,
    differences,
    mean,
    measured,
    slug,
)
from results import rows_of_journal as board

DOCS = Path(__file__).parents[1]
NOTHING = "–"

BOARDS = {
    "glyphs": "glyphs",
    "emoji": "emoji, last layer",
    "emoji_lower": "emoji, lower layer",
    "emoji_upper": "emoji, upper layers",
    "emoji_full": "emoji, whole network",
    "caltech101_frozen": "Caltech-101",
}
"""The columns of the table of results: journals and experiments."""

OTHERS = {
    "baseline, GeM pooling": ("gem", "baseline-gem"),
    "baseline, margin loss": ("margin",),
    "baseline, margin and GeM": ("margin-gem",),
    "contrastive": ("contrastive",),
    "Proxy-Anchor": ("proxy-anchor",),
    "ProxyNCA++": ("proxy-nca-pp",),
    "attentive grouping, margin loss": ("attentive-grouping-margin",),
    "attentive grouping, cut at `block6b_add`": ("attentive-grouping-block6b",),
}
"""Rows of the table of results without a page, by their names in boards."""

GLANCE = {
    "MAP@R, glyphs": "glyphs",
    "MAP@R, Caltech-101": "caltech101: half of the network",
    "MAP@R, emoji (frozen network)": "emoji",
    "MAP@R, emoji (frozen lower layer)": "emoji_lower",
    "MAP@R, emoji (upper layers)": "emoji_upper",
    "MAP@R, emoji (whole network)": "emoji_full",
}
"""Heads of rows in the table of a method, and the boards they repeat."""

COSTS = {"CPU time of a training step": 4, "memory of a training step": 6}
"""Heads of rows, and the columns of docs/methods/README.md they repeat."""


def table(rows: Iterable[Iterable[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |\n" for row in rows)
    return head + "|---" * (head.count(" | ") + 1) + "|\n" + "".join(body)


def rows_of(source: str, minus: str = "baseline") -> list[Row]:
    """Those of a journal, or of "data: experiment"."""
    data, _, experiment = source.partition(": ")
    if experiment:
        return list(measured()[data, experiment].values())
    return board(data, minus)


def shown(number: Number | None, is_bold: bool = False, sign: str = "") -> str:
    """A mean or a difference, with half of its interval in small type."""
    if number is None:
        return NOTHING
    bold = "**" * is_bold
    text = f"{bold}{number.mean:{sign}.3f}{bold}".replace("-", "−")
    if np.isfinite(number.half):
        text += f"<small>±{number.half:.3f}</small>".replace("±0", "±")
    return text


def of_board(source: str) -> str:
    """A table of a journal or experiment; after "−", what is subtracted."""
    source, _, minus = source.partition(" − ")
    rows = rows_of(source, minus or "baseline")
    minus = minus or next(
        (n.minus for x in rows for n in x.differences.values()), ""
    )
    metrics = ["map@r", "recall@1"]
    found = [["", "MAP@R", "recall@1", f"− {minus}"]]
    for row in rows:
        if "map@r" in row.means:
            means = (shown(row.means.get(x)) for x in metrics)
            less = row.differences.get("map@r")
            certain = less is not None and less.low * less.high > 0
            found.append([row.name, *means, shown(less, certain, "+")])
    if not any(row.differences for row in rows):
        found = [row[:3] for row in found]
    return table(found)


def of_results() -> str:
    """Methods by data: MAP@R, and below it recall@1."""
    columns = [{slug(x.name): x.means for x in rows_of(y)} for y in BOARDS]
    best = [
        {
            metric: max(means[metric].mean for means in column.values())
            for metric in ("map@r", "recall@1")
        }
        for column in columns
    ]
    names = {
        f"[{x}](../methods/{slug(x, '_')}.md)": (slug(x),) for x in METHODS
    }
    found = [["", *BOARDS.values()]]
    for label, known in (names | OTHERS).items():
        row = [label]
        for column, top in zip(columns, best, strict=True):
            means = next((column[x] for x in known if x in column), {})
            cells = (
                shown(means[metric], means[metric].mean == number)
                for metric, number in top.items()
                if metric in means
            )
            row.append("<br>".join(cells) or NOTHING)
        found.append(row)
    return table(found)


TABLES = {"results": of_results, "board": of_board}


def looked_up(path: str, title: str) -> Number:
    """The number that a link's title names."""
    *where, row, metric = title.split(": ")
    if path.endswith(".jsonl"):
        return mean(Path(path).stem, row, metric)
    if path == "differences.csv":
        return difference(*where, *row.split(" − "), metric)
    data, experiment = where
    found = measured()[data, experiment][row]
    return found.differences.get(metric) or found.means[metric]


def linked(found: re.Match[str]) -> str:
    """A link whose text is the number of its title, as precise as it was."""
    before, folder, path, title = found.groups()
    number = looked_up(path, title)
    sign = "+" * (before[0] in "+−")
    digits = len(re.split(r"[^\d]", before.partition(".")[2])[0])
    text = f"{number.mean:{sign}.{digits}f}"
    if "±" in before:
        text += f" ± {number.half:.{digits}f}"
    text = text.replace("-", "−")
    return f'[{text}]({folder}{path} "{title}")'


def of_page(page: str) -> str:
    def filled(found: re.Match[str]) -> str:
        arguments = [found[2]] if found[2] else []
        mark = found[0].partition("\n")[0]
        return f"{mark}\n\n{TABLES[found[1]](*arguments)}"

    page = re.sub(
        r"^<!-- (\w+)(?: (.+))? -->\n(?:\n(?:\|.*\n)+)?",
        filled,
        page,
        flags=re.M,
    )
    return re.sub(
        r"\[([+−]?\d[^\]]*)\]\(((?:\.\./results/)?)(\S+) \"([^\"]+)\"\)",
        linked,
        page,
    )


def of_method(page: str, name: str, costs: str) -> str:
    """The page of a method with its table "at a glance" made again."""

    def made(found: re.Match[str]) -> str:
        head = found[1]
        methods = dict.fromkeys([name, "baseline"])
        if head in COSTS:
            row = re.search(rf"^\| {name} \|.*", costs, re.M)
            assert row is not None, name  # noqa: S101
            cell = row[0].strip("| ").split(" | ")[COSTS[head]]
            return f"| {head} | {cell} | 1.00 |"
        if head not in GLANCE:
            return found[0]
        means = {x.name: x.means["map@r"] for x in rows_of(GLANCE[head])}
        values = [means.get(x.replace("_", "-")) for x in methods]
        cells = [
            f"{x.mean:.3f} ± {x.half:.3f}" if x else "not measured"
            for x in values
        ]
        return f"| {' | '.join([head, *cells])} |"

    top, middle, rest = page.partition("\n\n**")
    return re.sub(r"^\| (.*?) \| .* \|$", made, top, flags=re.M) + middle + rest


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def of_index(page: str, readme: str) -> str:
    """The first page of the site with the example of the README."""
    pattern = r"^```python\n[^`]*^```\n\n```text\n.*?^```\n"
    (example,) = re.findall(pattern, readme, re.M | re.S)
    page, count = re.subn(pattern, lambda _: example, page, flags=re.M | re.S)
    assert count == 1  # noqa: S101
    return page


def written() -> dict[Path, str]:
    """The files as they should be."""
    pages = [
        *sorted((DOCS / "results").glob("*.md")),
        DOCS / "guides" / "choosing.md",
    ]
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(differences())
    made = {DOCS / "results" / "differences.csv": lines.getvalue()}
    made |= {DOCS / "images" / x: svg for x, svg in charts.drawn().items()}
    made |= {path: of_page(read(path)) for path in pages}
    costs = read(DOCS / "methods" / "README.md")
    for path in sorted((DOCS / "methods").glob("*.md")):
        if "\n| at a glance |" in read(path):
            made[path] = of_method(read(path), path.stem, costs)
    index = DOCS / "index.md"
    made[index] = of_index(read(index), read(DOCS.parent / "README.md"))
    return made


def main() -> None:
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
