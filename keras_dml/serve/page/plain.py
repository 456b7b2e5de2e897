"""The answers to browsers that run no JavaScript: one page of HTML."""

import json
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from keras_dml.reports.search_page import SCORES

if TYPE_CHECKING:
    from keras_dml.search import Index

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Search by picture – keras_dml</title>
<link rel="stylesheet" href="assets/base.css">
<link rel="stylesheet" href="assets/page.css">
</head>
<body>
<header>
<h1>Search by picture</h1>
<p><a href="../">Search for another picture</a></p>
</header>
<main>
$content
</main>
</body>
</html>
""")

_FOUND = Template("""<p class="note">$note</p>
<ol class="grid">
<li><figure class="chosen"><img src="$seen" alt="Your picture, as the model sees
it"><figcaption><strong>Your picture</strong></figcaption></figure></li>
$hits
</ol>""")

_ERROR = Template("""<p class="error" role="alert">$error</p>""")


def plain_page(
    found: dict[str, Any], index: "Index | None", loading: str | None = None
) -> str:
    """What was found, as of `finding.find`, in HTML without scripts.

    Args:
        found: The answer.
        index: The gallery.
        loading: What is being loaded, as of `Reloader`.
    """
    hits = found["hits"] or ()
    note = "There is no gallery."
    if index is not None:
        note = SCORES[index.metric]
        if index.threshold is not None:
            note += f" Those of {index.threshold.value:.4f} and more match: "
            note += f"{index.threshold.meaning}."
    if loading:
        note += f" The server is loading {loading}."
    content = _FOUND.substitute(
        note=escape(note),
        seen=escape(found["seen"]),
        hits="\n".join(_hit(rank, hit) for rank, hit in enumerate(hits, 1)),
    )
    return _PAGE.substitute(content=content)


def plain_error(error: str) -> str:
    """What was wrong with a request, in the same form."""
    return _PAGE.substitute(content=_ERROR.substitute(error=_text(error)))


def _hit(rank: int, hit: dict[str, Any]) -> str:
    name = _text(hit["name"] or f"key {hit['key']}")
    address = "thumbnail?key=" + quote(json.dumps(hit["key"]))
    lines = [f"<strong>{rank}. {name}</strong>", f"{hit['score']:.4f}"]
    if hit["is_match"] is not None:
        lines[1] += " match" if hit["is_match"] else " no match"
    return (
        f'<li><figure><img src="{escape(address)}" alt="Result {rank}: {name}" '
        f'loading="lazy"><figcaption>{"<br>".join(lines)}</figcaption>'
        "</figure></li>"
    )


def _text(said: str) -> str:
    # Names of files may hold bytes that are no text.
    return escape(said.encode("utf-8", "replace").decode("utf-8"))
