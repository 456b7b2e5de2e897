"""Colors of figures and pages: one palette, for light and for dark."""

from contextlib import AbstractContextManager
from typing import Any

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
    """A color of the palette, for the scheme that is drawn for."""
    return PALETTE[name][_is_dark()]


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
    """The palette as variables of CSS, by the scheme of the reader's system."""

    def variables(scheme: int) -> str:
        return "".join(f"--{x}:{y[scheme]};" for x, y in PALETTE.items())

    return (
        f":root{{color-scheme:light dark;{variables(0)}}}\n"
        f"@media (prefers-color-scheme: dark){{:root{{{variables(1)}}}}}\n"
    )


def with_variables(svg: str) -> str:
    """The SVG of a figure that was drawn for light, its colors as variables.

    What matplotlib draws in black takes the color of the text around it.
    """
    for name, (light, _) in PALETTE.items():
        if name != "paper":  # White lines on pictures stay white.
            svg = svg.replace(light, f"var(--{name})")
    return svg.replace("#000000", "currentColor")


def _is_dark() -> bool:
    """Also with a style of matplotlib that is dark."""
    import matplotlib
    from matplotlib.colors import to_rgb

    return sum(to_rgb(matplotlib.rcParams["figure.facecolor"])) < 1.5
