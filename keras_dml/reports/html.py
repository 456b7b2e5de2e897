"""Pages: HTML files that ask for nothing else, in one style."""

import base64
import hashlib
from html import escape
from importlib import resources
from string import Template


def document(title: str, body: str, script: str = "") -> str:
    """A page, light or dark as the reader's system is.

    It is readable on a telephone. Its content security policy lets nothing
    be fetched, and nothing be run but the script.

    Args:
        title: Plain text.
        body: HTML; names in it must be escaped by `html.escape`.
        script: JavaScript that is run when the body has been read.
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
