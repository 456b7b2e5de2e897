"""HTML representations for notebooks: tables and rows of pictures.

All text is escaped, and no color is set, so that they can be read in light
and in dark.
"""

from collections.abc import Iterable, Sequence
from html import escape

MOST_PICTURES = 12
"""Pictures in a row: a notebook keeps them all."""

SIDE = 96
"""Longer side of a picture, in pixels."""


def html_table(rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table: its header and its rows, of plain text."""
    header, *below = rows
    head = "".join(f"<th>{_text(x)}</th>" for x in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{_text(x)}</td>' for x in row)}</tr>"
        for row in below
    )
    title = f"<caption>{_text(caption)}</caption>" if caption else ""
    return (
        f"<table>{title}<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def html_pictures(
    pictures: Iterable[tuple[str | None, str]], title: str
) -> str:
    """Pictures of data URIs, or None where there is none, with captions."""
    tiles = "".join(_tile(uri, caption) for uri, caption in pictures)
    return (
        f"<div>{_text(title)}</div>"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{tiles}</div>'
    )


def _tile(uri: str | None, caption: str) -> str:
    name = _text(caption)
    box = f"width:{SIDE}px;height:{SIDE}px"
    image = f'<div style="{box};border:1px dashed;opacity:.5">no picture</div>'
    if uri is not None:
        image = (
            f'<img src="{escape(uri)}" alt="{name}" '
            f'style="{box};object-fit:contain">'
        )
    return (
        f'<figure style="margin:0;width:{SIDE}px;font-size:80%;'
        f'overflow-wrap:anywhere">{image}<figcaption>{name}</figcaption>'
        "</figure>"
    )


def _text(text: str) -> str:
    # A name may hold bytes that are no text.
    return escape(text.encode("utf-8", "replace").decode("utf-8"))
