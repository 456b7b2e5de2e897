"""Canvas: sizes, colors and marks that all figures share.

Figures and pages have one palette, for light and for dark.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_dml.utils.types import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import Columns, DataFigure


WIDTH, HEIGHT = 4.2, 3.0
"""Inches of a chart without its legend: legible on a phone."""


PALETTE = {
    "paper": ("#ffffff", "#14171b"),
    "raised": ("#f4f5f7", "#1f242a"),
    "ink": ("#1b1f24", "#e6e8eb"),
    "soft": ("#57606a", "#a3abb5"),
    "line": ("#d0d5db", "#3a414a"),
    "link": ("#0a5ea8", "#7cbcff"),
    "right": ("#00795a", "#35c496"),
    "wrong": ("#b84a00", "#ff9a5c"),
    # Series, after Okabe and Ito, "Color Universal Design": in each scheme
    # those with contrast to the paper.
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#d55e00", "#f2892f"),
    "green": ("#009e73", "#3fd0a4"),
    "purple": ("#b66a97", "#dc9fc4"),
    "yellow": ("#8a7200", "#e0c840"),
    "gray": ("#6b6b6b", "#b4b4b4"),
}
"""Names of colors, as light and as dark pages show them."""


def color(name: str) -> str:
    """A color of the palette, for a light or dark style of matplotlib."""
    import matplotlib
    from matplotlib.colors import to_rgb

    face = to_rgb(matplotlib.rcParams["figure.facecolor"])
    return PALETTE[name][sum(face) < 1.5]


def dark() -> AbstractContextManager[None]:
    """A block in which figures are drawn for a dark page.

    Example:
        ```python
        with visualization.dark():
            figure = visualization.cosine_histograms(embeddings, labels)
        figure.save("cosines_dark.png")
        ```
    """
    import matplotlib

    paper, ink = PALETTE["paper"][1], PALETTE["ink"][1]
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor",
            "xtick.color", "ytick.color")  # fmt: skip
    papers = ("figure.facecolor", "axes.facecolor")
    colors: Any = dict.fromkeys(inks, ink) | dict.fromkeys(papers, paper)
    return matplotlib.rc_context(colors)


def style_sheet() -> str:
    """The palette as CSS variables, which follow the reader's color scheme."""

    def variables(scheme: int) -> str:
        return "".join(f"--{x}:{y[scheme]};" for x, y in PALETTE.items())

    return (
        f":root{{color-scheme:light dark;{variables(0)}}}\n"
        f"@media (prefers-color-scheme: dark){{:root{{{variables(1)}}}}}\n"
    )


def with_variables(svg: str) -> str:
    """The SVG of a light figure, with CSS variables as colors.

    What matplotlib draws in black takes the color of the text around it.
    """
    for name, (light, _) in PALETTE.items():
        if name != "paper":  # White lines on pictures stay white.
            svg = svg.replace(light, f"var(--{name})")
    return svg.replace("#000000", "currentColor")


class Style(NamedTuple):
    """The style of a series, which differs from others by more than color."""

    color: str
    marker: str
    line: str


STYLES = (
    Style("blue", "o", "-"),
    Style("orange", "s", "--"),
    Style("green", "^", ":"),
    Style("purple", "D", "-."),
    Style("yellow", "v", (0, (5, 1))),  # type: ignore[arg-type]
    Style("gray", "P", (0, (1, 3))),  # type: ignore[arg-type]
)
"""Styles of series; their colors are names of the palette."""

RIGHT = Style("right", "✓", "-")
WRONG = Style("wrong", "✗", (0, (2.2, 1.1)))  # type: ignore[arg-type]


def series_style(number: int) -> Style:
    """The style of the n-th series, counted from 0.

    After six, colors repeat with other marks and lines: no two of 36 series
    look the same.
    """
    again, place = divmod(number, len(STYLES))
    other = STYLES[(place + again) % len(STYLES)]
    return other._replace(color=color(STYLES[place].color))


def new_figure(
    data: "Columns", width: float = WIDTH, height: float = HEIGHT
) -> "DataFigure":
    """A figure without axes, its parts laid out so as not to overlap."""
    from keras_dml.visualization.data_figure import DataFigure

    return DataFigure(data, figsize=(width, height), layout="constrained")


def chart(
    data: "Columns",
    xlabel: str,
    ylabel: str,
    title: str,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> tuple["DataFigure", "Axes"]:
    """A figure with one pair of axes that have names."""
    figure = new_figure(data, width, height)
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize=11)
    return figure, axes


def add_grid(axes: "Axes") -> None:
    """Gives axes a grid behind what is drawn, in place of a frame."""
    axes.grid(alpha=0.35)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend(figure: "DataFigure") -> None:
    """Adds a legend below the chart, in as many columns as fit, up to 3.

    The figure grows, so that the chart keeps its size.
    """
    for columns in (3, 2, 1):
        legend = figure.legend(
            loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )
        size = legend.get_window_extent()
        if size.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)


def draw_curve(
    axes: "Axes",
    number: int,
    x: FloatArray | IntArray,
    y: FloatArray,
    label: str,
    *,
    marks: int = 20,
    size: float = 5,
) -> None:
    """Draws the n-th series, with at most about `marks` marks of a size."""
    style = series_style(number)
    axes.plot(
        x,
        y,
        color=style.color,
        linestyle=style.line,
        marker=style.marker,
        markersize=size,
        markevery=max(1, len(x) // marks),
        label=label,
    )


def add_title(figure: "DataFigure", title: str) -> None:
    """Adds a title at the left, where a narrow window shows it."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)


def make_logarithmic(axes: "Axes") -> None:
    """Makes the vertical axis logarithmic, with plain numbers."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low < 100 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    # Steps of 1, 2 and 5 have one significant digit.
    axes.yaxis.set_major_formatter(
        lambda x, _: np.format_float_positional(
            x, precision=1, unique=False, fractional=False, trim="-"
        )
    )
    axes.yaxis.set_minor_formatter("")


def hundredths(value: float) -> str:
    """A number with two digits after the point, and a sign as on axes."""
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def show_image(axes: "Axes", pixels: Any, mark: Style | None = None) -> None:
    """Draws an image without ticks, (H, W), (H, W, 1) or (H, W, 3).

    A mark frames it by color and by kind of line, just outside of it.
    """
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="none")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(mark is not None)
    if mark is not None:
        width = 2.5
        axes.spines[:].set(
            color=color(mark.color),
            linestyle=mark.line,
            linewidth=width,
            # Solid lines need closed corners, dashed ones open gaps.
            capstyle="projecting" if mark.line == "-" else "butt",
            position=("outward", width / 2),
        )
