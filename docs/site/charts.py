"""Charts of means with their intervals, for light and dark and a phone."""

from collections.abc import Iterator
from typing import NamedTuple

from results import Number, measured, rows_of_journal, title

WIDTH, LEFT, RIGHT = 480, 190, 62
"""Of the chart, its names, and its values."""

LINE, GAP, TOP = 17, 13, 68

STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2328}"
    "rect.page{fill:#fff}.title{font-weight:600}line.zero{stroke:#656d76}"
    ".a{fill:#0969da;stroke:#0969da}.b{fill:#bc4c00;stroke:#bc4c00}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect.page{fill:#1e2129}"
    "line.zero{stroke:#9198a1}"
    ".a{fill:#6cb6ff;stroke:#6cb6ff}.b{fill:#f69d50;stroke:#f69d50}}"
)


class Chart(NamedTuple):
    """Names with a mean of each series; the dashed line is at `zero`."""

    title: str
    series: list[str]
    rows: list[tuple[str, list[Number | None]]]
    zero: float | None = None


def svg(chart: Chart) -> str:
    known = [x for _, row in chart.rows for x in row if x is not None]
    low, high = min(x.low for x in known), max(x.high for x in known)

    def at(value: float) -> str:
        share = (value - low) / (high - low)
        return f"{LEFT + 8 + share * (WIDTH - LEFT - RIGHT - 16):.1f}"

    y, parts = TOP if len(chart.series) > 1 else TOP - 22, []
    for name, row in chart.rows:
        numbers = [(kind, x) for kind, x in zip("ab", row, strict=False) if x]
        middle = y + LINE * (len(numbers) - 1) / 2
        parts.append(text(LEFT - 10, middle, name, "end"))
        for kind, number in numbers:
            parts += marked(kind, number, at, y)
            y += LINE
        y += GAP
    head = [text(10, 18, chart.title, kind="title")]
    if len(chart.series) > 1:
        for i, (kind, name) in enumerate(zip("ab", chart.series, strict=True)):
            x = 16 + i * 190
            head += [mark(kind, f"{x}", 40), text(x + 12, 40, name)]
    if chart.zero is not None:
        x = at(chart.zero)
        head.append(
            f'<line class="zero" x1="{x}" x2="{x}" y1="28" y2="{y - LINE}" '
            'stroke-dasharray="4 3"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{y}" viewBox="0 0 {WIDTH} {y}">\n'
        f"<title>{chart.title}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{y}" rx="4"/>\n'
        + "\n".join([*head, *parts])
        + "\n</svg>\n"
    )


def text(
    x: float, y: float, words: str, anchor: str = "start", kind: str = ""
) -> str:
    name = f' class="{kind}"' if kind else ""
    return (
        f'<text{name} x="{x:g}" y="{y + 5:g}" text-anchor="{anchor}">'
        f"{words}</text>"
    )


def mark(kind: str, x: str, y: float) -> str:
    """A disc, or a square."""
    if kind == "a":
        return f'<circle class="a" cx="{x}" cy="{y:g}" r="4"/>'
    return (
        f'<rect class="b" x="{float(x) - 4:.1f}" y="{y - 4:g}" '
        'width="8" height="8"/>'
    )


def marked(kind: str, number: Number, at, y: float) -> Iterator[str]:
    yield (
        f'<line class="{kind}" x1="{at(number.low)}" x2="{at(number.high)}" '
        f'y1="{y:g}" y2="{y:g}" stroke-width="2"/>'
    )
    yield mark(kind, at(number.mean), y)
    yield text(WIDTH - 10, y, f"{number.mean:.3f}", "end")


def means(journal: str) -> dict[str, Number]:
    rows = rows_of_journal(journal, "baseline")
    return {row.name: row.means["map@r"] for row in rows}


def glyphs() -> Chart:
    """Each method with both kinds of pooling."""
    found = means("glyphs")
    rows = [
        (title(name), [number, found.get(f"{name}-gem")])
        for name, number in found.items()
        if not name.endswith("-gem")
    ]
    series = ["mean over the map", "GeM pooling"]
    return Chart("MAP@R on unseen characters", series, rows)


def emoji() -> Chart:
    """The baseline and attentive grouping by what trains."""
    boards = {
        "head, last layer": "emoji",
        "upper layers": "emoji_upper",
        "head, lower layer": "emoji_lower",
        "two blocks below": "emoji_cut",
        "whole network": "emoji_full",
    }
    rows: list[tuple[str, list[Number | None]]] = []
    for label, journal in boards.items():
        found = means(journal)
        rows.append((label, [found["baseline"], found["attentive-grouping"]]))
    found = means("emoji_full")
    cut = [found["block6b"], found["attentive-grouping-block6b"]]
    rows.append(("whole, cut at block6b", [*cut]))
    series = ["baseline", "attentive grouping"]
    return Chart("MAP@R on unseen emoji, by what trains", series, rows)


def caltech101() -> Chart:
    """What a frozen network allows."""
    found = measured()["caltech101", "frozen"].values()
    rows: list[tuple[str, list[Number | None]]] = [
        (title(row.name), [row.means["map@r"]]) for row in found
    ]
    (zero,) = (x.means["map@r"].mean for x in found if x.name == "baseline")
    head = "MAP@R on unseen classes of Caltech-101, frozen"
    return Chart(head, ["MAP@R"], rows, zero)


def drawn() -> dict[str, str]:
    """The charts by the names of their files."""
    return {
        f"results_{chart.__name__}.svg": svg(chart())
        for chart in (glyphs, emoji, caltech101)
    }
