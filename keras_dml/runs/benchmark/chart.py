"""A chart of means and their intervals, as SVG for light and dark pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, ROW = 560, 200, 480, 56, 34
STYLE = """\
.back{fill:#fff}.text{fill:#1f2328}.quiet{fill:#57606a}
.grid{stroke:#d8dee4}.zero{stroke:#6e7781;stroke-dasharray:4 3}
.bar{stroke:#3949ab;stroke-width:2.5}.dot{fill:#3949ab}
@media (prefers-color-scheme:dark){
.back{fill:#1e2129}.text{fill:#e6edf3}.quiet{fill:#a5adb8}
.grid{stroke:#3d444d}.zero{stroke:#9198a1}
.bar{stroke:#9fa8da}.dot{fill:#9fa8da}}"""


@dataclass(frozen=True)
class Measured:
    """A mean over seeds and its 95 % interval."""

    name: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Chart:
    """Means below each other; the dashed line is at `zero`.

    Attributes:
        title: What is measured.
        rows: A mean in each row, at least one; all numbers are finite.
        zero: With what the rows are compared.
        sign: "+" for differences.
    """

    title: str
    rows: Sequence[Measured]
    zero: float
    sign: str = ""


def ticks(low: float, high: float) -> tuple[list[float], int]:
    """Three to eight round numbers that hold the range between them.

    Returns:
        Them, and how many decimals tell them apart.
    """
    step, decimals = next(
        (digit / 10**decimals, decimals)
        for decimals in range(5, -8, -1)
        for digit in (1, 2, 5)
        if (high - low) / (digit / 10**decimals) <= 6
    )
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return [i * step for i in range(first, last + 1)], max(2, decimals)


def number(value: float, form: str) -> str:
    return format(value, form).replace("-", "−") if value else "0"


def svg(chart: Chart) -> str:
    """The chart as the text of an SVG file."""
    marks, decimals = ticks(
        min(row.low for row in chart.rows), max(row.high for row in chart.rows)
    )
    bottom = TOP + ROW * len(chart.rows)
    # About half an em a letter; the plot moves right where names are long.
    longest = max(len(row.name) for row in chart.rows)
    shift = max(0, 8 * longest + 36 - LEFT)
    left, right, width = LEFT + shift, RIGHT + shift, WIDTH + shift

    def x(value: float) -> str:
        share = (value - marks[0]) / (marks[-1] - marks[0])
        return f"{left + share * (right - left):.1f}"

    def line(kind: str, a: str, b: float, c: str, d: float) -> str:
        return f'<path class="{kind}" d="M{a} {b}L{c} {d}"/>'

    def text(
        kind: str, a: float | str, b: float, anchor: str, what: str
    ) -> str:
        return (
            f'<text class="{kind}" x="{a}" y="{b}" text-anchor="{anchor}">'
            f"{escape(what)}</text>"
        )

    parts = [text("text", 20, 28, "start", chart.title)]
    for mark in marks:
        parts.append(line("grid", x(mark), TOP - 8, x(mark), bottom))
        label = number(mark, f"{chart.sign}.{decimals}f")
        parts.append(text("quiet", x(mark), bottom + 20, "middle", label))
    zero = x(chart.zero)
    parts.append(line("zero", zero, TOP - 8, zero, bottom))
    for i, row in enumerate(chart.rows):
        y = TOP + ROW * i + ROW // 2
        value = number(row.mean, f"{chart.sign}.3f")
        parts += [
            text("text", left - 16, y + 5, "end", row.name.replace("-", " ")),
            line("bar", x(row.low), y, x(row.high), y),
            line("bar", x(row.low), y - 6, x(row.low), y + 6),
            line("bar", x(row.high), y - 6, x(row.high), y + 6),
            f'<circle class="dot" cx="{x(row.mean)}" cy="{y}" r="5"/>',
            text("text", width - 20, y + 5, "end", value),
        ]
    height = bottom + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui,sans-serif" font-size="14">\n'
        f"<title>{escape(chart.title)}</title>\n<style>\n{STYLE}\n</style>\n"
        f'<rect class="back" width="{width}" height="{height}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
