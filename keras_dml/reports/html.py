"""Pages: HTML files that ask for nothing else, in one style."""

import base64
import hashlib
import io
import re
from html import escape
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from keras_dml.data.fields import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from keras_dml.visualization.data_figure import DataFigure

_PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")


def document(title: str, body: str, script: str = "") -> str:
    """A page, light or dark as the reader's system is.

    It is readable on a telephone. Its content security policy lets nothing
    be fetched, and nothing be run but the script.

    Args:
        title: Plain text.
        body: HTML; names in it must be escaped by `html.escape`.
        script: JavaScript that is run after the body.
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        digest = hashlib.sha256(script.encode()).digest()
        allowed = base64.b64encode(digest).decode()
        policy += f"; script-src 'sha256-{allowed}'"
        body += f"\n<script>{script}</script>"
    return Template(asset("document.html")).substitute(
        policy=policy,
        title=escape(title),
        style=asset("page.css"),
        body=body,
    )


def asset(name: str) -> str:
    """A file of `assets`."""
    folder = resources.files("keras_dml.reports") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def data_uri(content: bytes, kind: str) -> str:
    """A file of a MIME type as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(
    pixels: Pixels, side: int = 192, kind: str = "jpeg", quality: int = 85
) -> str:
    """A small picture as a data URI.

    Args:
        pixels: (H, W, 1) or (H, W, 3) uint8.
        side: The longer side of the picture in pixels, at most.
        kind: "jpeg" or "webp".
        quality: From 0 to 100.
    """
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((side, side))
    return picture(image, kind, quality)


def picture(image: "Image", kind: str, quality: int) -> str:
    """An image of Pillow's as a data URI; see `thumbnail`."""
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return data_uri(file.getvalue(), f"image/{kind}")


def inline_svg(figure: "DataFigure", name: str, label: str) -> str:
    """A figure as an `<svg>` element.

    What matplotlib draws in black takes the color of the page's text, and
    the background is that of the page, so that the figure can be read in
    light and in dark. Pictures in it become WebP, a tenth in size.

    Args:
        figure: The figure.
        name: A prefix that makes the element's ids unique in a page.
        label: What the figure shows, for those who do not see it.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = _without_unused_ids(svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = svg.replace("#000000", "currentColor")
    svg = _PNG.sub(lambda found: _webp(found[1]), svg)
    width, height = (round(float(x)) for x in figure.get_size_inches() * 96)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    return svg.replace(
        "<svg",
        f'<svg role="img" aria-label="{escape(label, quote=True)}" '
        f'fill="currentColor" style="--width: {width}px" '
        f'data-size="{width}x{height}"',
        1,
    )


def _without_unused_ids(svg: str) -> str:
    """Without the ids of mere groups, which subfigures repeat."""
    used = set(re.findall(r"""(?:href="|url\()#([^")]+)""", svg))
    return re.sub(
        r' id="([^"]*)"',
        lambda found: found[0] if found[1] in used else "",
        svg,
    )


def _webp(encoded: str) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
        return picture(image, "webp", quality=80)
