"""What the site needs beyond its plugins."""

import html
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llms
import reference
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

EQUATION = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)
SOURCE = re.compile(r'href="([^":]+)\.(?:md|ipynb)(#[^"]*)?"')
FIGURE = re.compile(r'(<img [^>]*src="[^"]*images/([\w/]+))\.png("[^>]*>)')
BOOSTS = {
    "start": 4,
    "guides": 4,
    "guides/troubleshooting.md": 0.5,  # It quotes the words of all others.
    "reference": 0.5,
}
NO_TEXT = "No description has been provided for this image"
"""What nbconvert gives each picture of a notebook as its text."""
MEASURED = re.compile(
    r"[+−-]?\d[\d.,]* ± \d[\d.]*|\[[+−-]?\d[\d.]*, [+−-]?\d[\d.]*\]|&lt; 0\.\d+"
)
"""A number with its interval, an interval, or a bound of a p value."""
NAMES = re.compile(r"<pre\b.*?</pre>|(?<=<code>)[^<]{17,}", re.DOTALL)
"""Blocks of code, which scroll, and code in a text that may be too wide."""
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
LOSS = re.compile(
    r"<(a|h\d|pre|autoref)\b.*?</\1>|<code>(\w+)\b[^<]*</code>", re.DOTALL
)
"""What holds no further link, or code that may name a loss."""
METHOD = re.compile(r"reference/methods\.md#keras_dml\.methods\.(\w+)")
PAGES = {x["class"]: name for name, x in reference.DATA["losses"].items()}
"""Losses by class, and the names of their pages."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The whole menu.

    Pictures for links need the address of the site, and the menu that of the
    source: SITE_URL and REPOSITORY_URL of the environment, if they are known.
    """
    if site := os.environ.get("SITE_URL"):
        config.site_url = f"{site.rstrip('/')}/"
    config.nav = reference.menu(config.nav)
    if repository := os.environ.get("REPOSITORY_URL"):
        config.nav[-1]["Project"].append({"Repository": repository})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The reference, llms.txt, and the overview of commands.

    The overview has a name of its own, as `index` is a command.
    """
    for path, text in reference.pages():
        files.append(File.generated(config, path, content=text))
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
    head = {"title": config.site_name, "summary": config.site_description}

    def file_of(path: str) -> File:
        file = files.get_file_from_path(path)
        assert file is not None, path  # noqa: S101
        return file

    text = llms.llms(
        config.nav,
        head,
        lambda path: markdown_of(Path(file_of(path).abs_src_path or "")),
        lambda path: (config.site_url or "") + file_of(path).url,
    )
    files.append(File.generated(config, "llms.txt", content=text))
    return files


def markdown_of(page: Path) -> str:
    """The text of a page, or that of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    written = (x["source"] for x in cells if x["cell_type"] == "markdown")
    return "\n\n".join("".join(source) for source in written)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Pages are described by a sentence of theirs; search prefers guides.

    Links to a method in the reference lead to its page.
    """
    path = page.file.src_uri
    boost = BOOSTS.get(path, BOOSTS.get(path.partition("/")[0], 1))
    page.meta.setdefault("search", {"boost": boost})
    if sentence := llms.description(markdown):
        page.meta.setdefault("description", html.escape(sentence))
    return METHOD.sub(r"reference/methods/\1.md", markdown)


def linked(match: re.Match[str], page: Page) -> str:
    """Code that begins with the name of a loss, as a link to its page."""
    name = PAGES.get(match[2])
    path = f"reference/losses/{name}.html"
    if name is None or path == page.url:
        return match[0]
    return f'<a href="{get_relative_url(path, page.url)}">{match[0]}</a>'


def mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    equation = convert(html.unescape(match[2]).strip(), display=display)
    if match[1] == "span":
        return equation
    # What is wider than a phone scrolls by itself, not with the page.
    return f'<div class="equation">{equation}</div>'


def both_schemes(match: re.Match[str]) -> str:
    """A figure as it is drawn for light and for dark, if it is for both."""
    start, name, rest = match.groups()
    if not (Path(__file__).parents[1] / f"images/{name}_dark.png").exists():
        return match[0]
    light, dark = ".png#only-light", "_dark.png#only-dark"
    return f"{start}{light}{rest}{start}{dark}{rest}"


def breakable(match: re.Match[str]) -> str:
    """Code in a text, which breaks between names and not within."""
    if match[0].startswith("<pre"):
        return match[0]
    return re.sub(r"([.(=/,])(?=[A-Za-z_]|&quot;)", r"\1<wbr>", match[0])


def address(match: re.Match[str]) -> str:
    page, anchor = match.groups(default="")
    return f'href="{page.replace("README", "index")}.html{anchor}"'


def picture_texts(notebook: Path) -> Iterator[str]:
    """Texts of the pictures among the outputs: "alt" in a cell's metadata."""
    for cell in json.loads(notebook.read_text())["cells"]:
        for output in cell.get("outputs", ()):
            if any(x.startswith("image/") for x in output.get("data", ())):
                yield cell["metadata"].get("alt", NO_TEXT)


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Equations as MathML, which browsers draw by themselves.

    A measured number stays on one line with its interval, and so does a name in
    code; those of losses are links.

    Of notebooks, links to the pages that are made of files, as MkDocs does it
    for pages in Markdown, the texts of pictures, and no script, which would
    fetch another.
    """
    if page.file.src_uri.endswith(".ipynb"):
        content = SCRIPT.sub("", SOURCE.sub(address, content))
        texts = picture_texts(Path(page.file.abs_src_path or ""))
        content = re.sub(
            f'alt="{NO_TEXT}"',
            lambda _: f'alt="{html.escape(next(texts, NO_TEXT))}"',
            content,
        )
    content = FIGURE.sub(both_schemes, content)
    content = LOSS.sub(lambda x: linked(x, page), content)
    content = NAMES.sub(breakable, content)
    content = MEASURED.sub(lambda x: x[0].replace(" ", "\u00a0"), content)
    return EQUATION.sub(mathml, content)
