"""Draws the charts of results: `python docs/site/charts.py`.

Numbers are read from the tables of docs/results, so that a chart cannot say
anything else than they do; `.ci/lint` draws them again.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from keras_dml.runs.benchmark.chart import Chart, Measured, svg

DOCS = Path(__file__).parents[1]
RESULTS = DOCS / "results"
LEADERBOARDS = {
    "emoji": ("emoji (frozen network, five seeds)", "proxy-anchor"),
    "glyphs": ("characters (glyphs, tuned, five seeds)", "baseline"),
    "emoji_full": ("emoji (whole network in training, five seeds)", "baseline"),
    "emoji_upper": ("emoji (upper layers in training, five seeds)", "baseline"),
    "emoji_lower": ("emoji (frozen, a lower layer, five seeds)", "baseline"),
}
"""By their data: of what, and the recipe of the dashed line."""


def section(text: str, *headings: str) -> str:
    """What stands below the last of headings that are inside each other."""
    for heading in headings:
        level = heading.partition(" ")[0]
        text = text.split(f"\n{heading}", 1)[1]
        text = re.split(rf"^#{{1,{len(level)}}} ", text, flags=re.M)[0]
    return text


def cells(text: str) -> Iterator[list[str]]:
    """The rows of tables that compare seeds, without those at the top."""
    for line in text.splitlines():
        row = [x.strip() for x in line.strip("|").split("|")]
        if len(row) == 9 and re.match(r"\d", row[1]):
            yield row


def interval(text: str) -> tuple[float, float]:
    low, high = re.findall(r"[+-]?\d\.\d+", text)
    return float(low), float(high)


def means(text: str, prefix: str) -> list[Measured]:
    return [
        Measured(row[0].removeprefix(prefix), float(row[1]), *interval(row[2]))
        for row in cells(text)
    ]


def differences(text: str) -> list[Measured]:
    return [
        Measured(row[0], float(row[4]), *interval(row[5]))
        for row in cells(text)
        if row[4] != "–"
    ]


def ranked(text: str) -> list[Measured]:
    """The rows of a leaderboard: place, recipe, mean ± half the interval."""
    row = r"^\| \d+ \| \[(\S+)\]\S+ \| (\S+) ± (\S+) \|"
    return [around(*found) for found in re.findall(row, text, re.M)]


def with_halves(text: str) -> list[Measured]:
    """The rows of the first table of means ± halves of their intervals."""
    row = r"^\| (\S+) \| \**(\S+) ± ([\d.]+)\**"
    (table,) = re.findall(rf"((?:{row}.*\n)+)", text, re.M)[:1]
    return [around(*found) for found in re.findall(row, table[0], re.M)]


def around(name: str, mean: str, half: str) -> Measured:
    middle, width = float(mean), float(half)
    return Measured(name, middle, middle - width, middle + width)


def mean_of(name: str, rows: list[Measured]) -> float:
    (row,) = (x for x in rows if x.name == name)
    return row.mean


def charts(results: str) -> dict[str, Chart]:
    """By the names of their files."""
    glyphs = means(section(results, "## glyphs: six", "### map@r"), "glyphs-")
    tuned = with_halves(section(results, "## glyphs: tuned"))
    caltech = means(
        section(results, "## Caltech-101", "### map@r"), "caltech101-"
    )
    frozen = with_halves(section(results, "## Caltech-101", "### Frozen"))
    ablations = differences(section(results, "## glyphs: ablations"))
    return {
        "results_glyphs.svg": Chart(
            "MAP@R on unseen characters (glyphs, five seeds)",
            glyphs,
            mean_of("baseline", glyphs),
        ),
        "results_glyphs_tuned.svg": Chart(
            "MAP@R on unseen characters (glyphs, tuned, five seeds)",
            tuned,
            mean_of("baseline", tuned),
        ),
        "results_caltech101.svg": Chart(
            "MAP@R on unseen classes (Caltech-101, three seeds)",
            caltech,
            mean_of("baseline", caltech),
        ),
        "leaderboard_caltech101.svg": Chart(
            "MAP@R on unseen classes (Caltech-101, frozen, five seeds)",
            frozen,
            mean_of("baseline", frozen),
        ),
        "results_ablations.svg": Chart(
            "MAP@R of ablations minus that of the method (glyphs)",
            ablations,
            0.0,
            "+",
        ),
    }


def leaderboard(data: str) -> Chart:
    """That of the page which shows it."""
    of, reference = LEADERBOARDS[data]
    (page,) = (
        text
        for text in map(Path.read_text, RESULTS.glob("leaderboard*.md"))
        if f"/leaderboard_{data}.svg)" in text
    )
    rows = ranked(page)
    return Chart(f"MAP@R on unseen {of}", rows, mean_of(reference, rows))


def drawn() -> dict[str, Chart]:
    """Those of the pages as they are."""
    boards = {f"leaderboard_{x}.svg": leaderboard(x) for x in LEADERBOARDS}
    return charts((DOCS / "results" / "README.md").read_text()) | boards


def main() -> None:
    for file, chart in drawn().items():
        (DOCS / "images" / file).write_text(svg(chart))


if __name__ == "__main__":
    main()
