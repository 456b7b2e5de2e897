"""A page of search results, to look at."""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from keras_dml.data.thumbnails import row_thumbnail
from keras_dml.reports.html import document
from keras_dml.search.hits import Hit, Hits

SCORES = {
    "cosine": "Scores are cosine similarities: 1 means the same direction.",
    "dot": "Scores are dot products.",
    "euclidean": "Scores are negative distances: 0 means identical.",
}
"""What scores are, by metric, in a sentence."""


def results_page(queries: Sequence[str | os.PathLike[str]], hits: Hits) -> str:
    """One page of HTML with Q files that were searched for, and Q lists of
    what was found."""
    title = "Search results"
    about = SCORES[hits.metric]
    if hits.threshold is not None:
        about += f" Scores of {hits.threshold:.4f} and more are matches"
        about += f": {hits.meaning}." if hits.meaning else "."
    parts = [
        f'<header>\n<h1>{title}</h1>\n<p class="note">{about}</p>\n</header>',
        "<main>",
    ]
    for path, found in zip(queries, hits, strict=True):
        figures = [_query(Path(path), found, hits.threshold)]
        figures += [_hit(rank, hit) for rank, hit in enumerate(found, 1)]
        items = "\n".join(f"<li>{figure}</li>" for figure in figures)
        parts.append(
            f"<section>\n<h2>{_text(Path(path).name)}</h2>\n"
            f'<ul class="grid">\n{items}\n</ul>\n</section>'
        )
    return document(title, "\n".join([*parts, "</main>"]))


def caption(row: dict[str, Any]) -> str:
    """What a row's image is called: its class, or its label, or nothing."""
    for column in ("name", "label"):
        if row.get(column) is not None:
            return str(row[column])
    return ""


def _query(path: Path, found: list[Hit], threshold: float | None) -> str:
    verdict = ""
    if threshold is not None:
        is_match = bool(found and found[0].is_match)
        verdict = f"<br>{_verdict(is_match, 'has a match', 'has no match')}"
    name = path.name
    picture = _picture({"path": str(path)}, name, f"Query: {name}")
    return (
        f'<figure class="chosen">{picture}<figcaption><strong>Query</strong>'
        f"{verdict}</figcaption></figure>"
    )


def _hit(rank: int, hit: Hit) -> str:
    name = caption(hit.row)
    file = os.path.basename(str(hit.row.get("path") or ""))
    called = name or file or f"key {hit.key}"
    said = f"Result {rank}: {called}, similarity {hit.score:.4f}"
    score = f"{hit.score:.4f}"
    if hit.is_match is not None:
        score += f" {_verdict(hit.is_match, 'match', 'no match')}"
    lines = [f"<strong>{rank}. {_text(called)}</strong>", score]
    lines += [_text(file)] if file not in ("", called) else []
    return (
        f"<figure>{_picture(hit.row, called, said)}<figcaption>"
        f"{'<br>'.join(lines)}</figcaption></figure>"
    )


def _verdict(is_match: bool, good: str, bad: str) -> str:
    kind, text = ("right", good) if is_match else ("wrong", bad)
    return f'<span class="{kind}">{text}</span>'


def _picture(row: dict[str, Any], called: str, said: str) -> str:
    """The picture of a row; what it is called where there is none."""
    why = ""
    try:
        uri = row_thumbnail(row)
    except (ValueError, OSError):
        uri, why = None, '<span class="note">file cannot be read</span>'
    if uri is not None:
        return f'<img src="{escape(uri)}" alt="{_text(said)}">'
    return (
        f'<div class="missing" role="img" aria-label="{_text(said)}, without '
        f'a picture"><span>{_text(called)}{why}</span></div>'
    )


def _text(name: str) -> str:
    # A name may hold bytes that are no text.
    return escape(name.encode("utf-8", "replace").decode("utf-8"))
