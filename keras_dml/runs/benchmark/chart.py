"""A chart of means and their intervals, as SVG for light and dark pages."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from keras_dml.visualization import canvas

_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328;background:#fff}"
    "@media (prefers-color-scheme:dark)"
    "{svg{color:#e6edf3;background:#1e2129}}</style>"
)


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


def svg(chart: Chart) -> str:
    """The chart as the text of an SVG file."""
    import matplotlib

    rows, means = range(len(chart.rows)), [row.mean for row in chart.rows]
    names = [row.name.replace("-", " ") for row in chart.rows]
    figure = canvas.new_figure(
        {}, canvas.WIDTH + 0.08 * max(map(len, names)), 1 + 0.32 * len(rows)
    )
    canvas.head(figure, chart.title)
    axes = figure.add_subplot()
    axes.axvline(chart.zero, color=canvas.look(5).color, linestyle="--")
    axes.errorbar(
        means,
        rows,
        xerr=[
            [row.mean - row.low for row in chart.rows],
            [row.high - row.mean for row in chart.rows],
        ],
        fmt="o",
        capsize=4,
        color=canvas.look(0).color,
    )
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    form = f"{chart.sign}.3f"
    values = axes.secondary_yaxis("right")
    values.set_yticks(
        rows, [format(x, form).replace("-", "−") if x else "0" for x in means]
    )
    for side in (axes, values):
        side.tick_params("y", length=0)
        side.spines[:].set_visible(False)
    axes.grid(axis="x", alpha=0.35)
    buffer = io.StringIO()
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": chart.title}
    ):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Title": chart.title, "Date": None, "Creator": None},
        )
    text = buffer.getvalue().replace("#000000", "currentColor")
    return text.replace("<defs>", f"{_STYLE}\n <defs>", 1)
