"""Pages: self-contained HTML files in one style, and that of search results."""

import base64
import hashlib
import io
import os
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from keras_dml.data.thumbnails import picture, row_thumbnail
from keras_dml.visualization.canvas import style_sheet, with_variables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_dml.search.hits import Hit, Hits

SCORES = {
    "cosine": "Scores are cosine similarities: 1 means the same direction.",
    "dot": "Scores are dot products.",
    "euclidean": "Scores are negative distances: 0 means identical.",
}
"""A sentence on the scores of each metric."""

_PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")


def document(title: str, body: str, script: str = "") -> str:
    """A page, light or dark as the reader's system is.

    Its content security policy lets nothing be fetched, and nothing be run but
    the script, a module of JavaScript. The title is plain text, and the body
    HTML, with names that must be escaped.
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
    return style_sheet() + asset("page.css")


def asset(name: str) -> str:
    folder = resources.files("keras_dml.reports") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def inline_svg(figure: "Figure", name: str, label: str) -> str:
    """A figure as an `<svg>` element.

    Its colors become those of the page, light or dark, and its background is
    that of the page. Pictures in it become WebP, a tenth in size. Its ids begin
    with `name`, unique in a page; `label` is for those who do not see it.
    """
    import matplotlib
    from PIL import Image

    def as_webp(png: re.Match[str]) -> str:
        with Image.open(io.BytesIO(base64.b64decode(png[1]))) as image:
            return picture(image, "webp", quality=80)

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    # Subfigures repeat the ids of mere groups.
    targets = set(re.findall(r"""(?:href="|url\()#([^")]+)""", svg))
    svg = re.sub(
        r' id="([^"]*)"', lambda x: x[0] if x[1] in targets else "", svg
    )
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = with_variables(svg)
    svg = _PNG.sub(as_webp, svg)
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


def results_page(
    queries: Sequence[str | os.PathLike[str]], hits: "Hits"
) -> str:
    """A page of Q files that were searched for, and the Q lists of hits."""
    title = "Search results"
    about = SCORES[hits.metric]
    if hits.threshold is not None:
        about += f" Scores of {hits.threshold:.4f} and more are matches"
        about += f": {hits.meaning}." if hits.meaning else "."
    parts = [
        f'<header>\n<h1>{title}</h1>\n<p class="note">{about}</p>\n</header>',
        "<main>",
    ]
    for path, own_hits in zip(queries, hits, strict=True):
        figures = [_query(Path(path), own_hits, hits.threshold)]
        figures += [_hit(rank, hit) for rank, hit in enumerate(own_hits, 1)]
        items = "\n".join(f"<li>{figure}</li>" for figure in figures)
        parts.append(
            f"<section>\n<h2>{_text(Path(path).name)}</h2>\n"
            f'<ul class="grid">\n{items}\n</ul>\n</section>'
        )
    return document(title, "\n".join([*parts, "</main>"]))


def caption(row: dict[str, Any]) -> str:
    """The caption of a row's image: its class, or its label, or nothing."""
    for column in ("name", "label"):
        if row.get(column) is not None:
            return str(row[column])
    return ""


def _query(path: Path, hits: "list[Hit]", threshold: float | None) -> str:
    verdict = ""
    if threshold is not None:
        is_match = bool(hits and hits[0].is_match)
        verdict = f"<br>{_verdict(is_match, 'has a match', 'has no match')}"
    name = path.name
    image = _picture({"path": str(path)}, name, f"Query: {name}")
    return (
        f'<figure class="chosen">{image}<figcaption><strong>Query</strong>'
        f"{verdict}</figcaption></figure>"
    )


def _hit(rank: int, hit: "Hit") -> str:
    name = caption(hit.row)
    file = os.path.basename(str(hit.row.get("path") or ""))
    title = name or file or f"key {hit.key}"
    alt = f"Result {rank}: {title}, similarity {hit.score:.4f}"
    score = f"{hit.score:.4f}"
    if hit.is_match is not None:
        score += f" {_verdict(hit.is_match, 'match', 'no match')}"
    lines = [f"<strong>{rank}. {_text(title)}</strong>", score]
    lines += [_text(file)] if file not in ("", title) else []
    return (
        f"<figure>{_picture(hit.row, title, alt)}<figcaption>"
        f"{'<br>'.join(lines)}</figcaption></figure>"
    )


def _verdict(is_match: bool, good: str, bad: str) -> str:
    kind, text = ("right", good) if is_match else ("wrong", bad)
    return f'<span class="{kind}">{text}</span>'


def _picture(row: dict[str, Any], title: str, alt: str) -> str:
    """The picture of a row; its title where there is none."""
    why = ""
    try:
        uri = row_thumbnail(row)
    except (ValueError, OSError):
        uri, why = None, '<span class="note">file cannot be read</span>'
    if uri is not None:
        return f'<img src="{escape(uri)}" alt="{_text(alt)}">'
    return (
        f'<div class="missing" role="img" aria-label="{_text(alt)}, without '
        f'a picture"><span>{_text(title)}{why}</span></div>'
    )


def _text(name: str) -> str:
    # A name may hold bytes that are no text.
    return escape(name.encode("utf-8", "replace").decode("utf-8"))
