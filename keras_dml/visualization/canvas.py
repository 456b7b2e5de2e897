"""What the figures have in common: size, colors, marks."""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import Columns, DataFigure

WIDTH, HEIGHT = 4.2, 3.2
"""Inches of a chart: its letters stay legible on a phone."""


class Look(NamedTuple):
    """How a series looks, told apart without its color too."""

    color: str
    marker: str
    line: str
    hatch: str


# Of Okabe and Ito, "Color Universal Design", those that have contrast to
# white and to near-black alike.
LOOKS = (
    Look("#0072B2", "o", "-", "///"),
    Look("#D55E00", "s", "--", "\\\\\\"),
    Look("#009E73", "^", ":", "..."),
    Look("#B66A97", "D", "-.", "xxx"),
    Look("#8A7200", "v", (0, (5, 1)), "+++"),  # type: ignore[arg-type]
    Look("#6B6B6B", "P", (0, (1, 3)), "ooo"),  # type: ignore[arg-type]
)

RIGHT = Look("#009E73", "✓", "-", "")
WRONG = Look("#D55E00", "✗", "--", "")


def look(number: int) -> Look:
    """The look of the n-th series, counted from 0."""
    return LOOKS[number % len(LOOKS)]


def new_figure(
    data: "Columns",
    width: float = WIDTH,
    height: float = HEIGHT,
    **kwargs: Any,
) -> "DataFigure":
    """A figure without axes, its parts laid out so as not to overlap."""
    from keras_dml.visualization.data_figure import DataFigure

    kwargs.setdefault("layout", "constrained")
    return DataFigure(data, figsize=(width, height), **kwargs)


def chart(
    data: "Columns", xlabel: str, ylabel: str, title: str
) -> tuple["DataFigure", "Axes"]:
    """A figure with one pair of axes that have names."""
    figure = new_figure(data)
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.35)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def make_logarithmic(axes: "Axes") -> None:
    """A logarithmic vertical axis for what is drawn, its numbers plain."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low < 100 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def show_image(axes: "Axes", pixels: Any, **kwargs: Any) -> None:
    """Draws an image without ticks, (H, W), (H, W, 1) or (H, W, 3)."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 2:
        kwargs = {"cmap": "gray", "vmin": 0, "vmax": 255, **kwargs}
    axes.imshow(pixels, interpolation="none", **kwargs)
    axes.set_xticks([])
    axes.set_yticks([])


def frame(axes: "Axes", mark: Look) -> None:
    """Frames an image by color and by kind of line."""
    for spine in axes.spines.values():
        spine.set(color=mark.color, linestyle=mark.line, linewidth=2.5)


def no_frame(axes: "Axes") -> None:
    """Takes the frame of an image away."""
    axes.spines[:].set_visible(False)
