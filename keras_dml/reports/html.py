"""Pages: self-contained HTML files in one style."""

import base64
import hashlib
import io
import re
from html import escape
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from keras_dml.data.thumbnails import picture
from keras_dml.visualization.colors import style_sheet, with_variables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")


def document(title: str, body: str, script: str = "") -> str:
    """A page, light or dark as the reader's system is.

    It is readable on a telephone. Its content security policy lets nothing be
    fetched, and nothing be run but the script, a module of JavaScript. The
    title is plain text, and the body HTML, with names that must be escaped.
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        digest = hashlib.sha256(script.encode()).digest()
        allowed = base64.b64encode(digest).decode()
        policy += f"; script-src 'sha256-{allowed}'"
        body += f'\n<script type="module">{script}</script>'
    return Template(asset("document.html")).substitute(
        policy=policy, title=escape(title), style=style(), body=body
    )


def style() -> str:
    """The style sheet of all pages."""
    return style_sheet() + asset("page.css")


def asset(name: str) -> str:
    """A file of `assets`."""
    folder = resources.files("keras_dml.reports") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def inline_svg(figure: "Figure", name: str, label: str) -> str:
    """A figure as an `<svg>` element.

    Its colors become those of the page, light or dark, and its background is
    that of the page. Pictures in it become WebP, a tenth in size. Its ids begin
    with `name`, unique in a page; `label` is for those who do not see it.
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
    svg = with_variables(svg)
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
