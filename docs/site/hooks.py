"""What the site needs beyond its plugins."""

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

EQUATION = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)
SOURCE = re.compile(r'href="([^":]+)\.(?:md|ipynb)(#[^"]*)?"')
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The overview of the commands, whose address `index` would take."""
    files.append(
        File(
            "commands/README.md",
            config.docs_dir,
            config.site_dir,
            config.use_directory_urls,
            dest_uri="commands/overview.html",
            inclusion=InclusionLevel.INCLUDED,
        )
    )
    return files


def mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    equation = convert(html.unescape(match[2]).strip(), display=display)
    if match[1] == "span":
        return equation
    # What is wider than a phone scrolls by itself, not with the page.
    return f'<div class="equation">{equation}</div>'


def address(match: re.Match[str]) -> str:
    page, anchor = match.groups(default="")
    return f'href="{page.replace("README", "index")}.html{anchor}"'


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Equations as MathML, which browsers draw by themselves.

    Of notebooks, links to the pages that are made of files, as MkDocs does it
    for pages in Markdown, and no script, which would fetch another.
    """
    if page.file.src_uri.endswith(".ipynb"):
        content = SCRIPT.sub("", SOURCE.sub(address, content))
    return EQUATION.sub(mathml, content)
