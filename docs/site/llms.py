"""Descriptions of pages, and llms.txt: the menu with them, for assistants.

https://llmstxt.org describes the format.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

SHORT = 40
"""Characters of a sentence that does not describe a page by itself."""

GENERATED = ("reference/losses/", "reference/methods/")
"""Pages of a loss or a method each, which others list."""

HEAD = """\
# {title}

> {summary}

Assistants that write code with this package start from \
[For assistants]({assistants}).
"""

NO_TEXT = re.compile(r"\A---\n.*?^---\n|^```.*?^```$|<!--.*?-->", re.M | re.S)
LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
SKIPPED = re.compile(r"[#|>!<:]|- |\d+\. |.{,99}: \*[A-Z]")
"""Starts of headings, tables, lists, pictures, directives and papers."""


def description(markdown: str) -> str:
    """The first sentence of a page in Markdown, or two if it is short."""
    for paragraph in NO_TEXT.sub("", markdown).split("\n\n"):
        if paragraph.strip() and not SKIPPED.match(paragraph.lstrip()):
            text = LINK.sub(r"\1", " ".join(paragraph.split()))
            text = re.sub("[*`]", "", text)
            sentences = re.split(r"(?<=[.?!:])\s", text)
            count = 1 if len(sentences[0]) > SHORT else 2
            return re.sub(":$", ".", " ".join(sentences[:count]))
    return ""


def title(markdown: str) -> str:
    heading = re.search(r"^# (.+)$", markdown, re.M)
    return heading[1] if heading else ""


def links(entry: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Titles, or "" for that of the page, and paths of an entry of the menu."""
    if isinstance(entry, dict):
        for title, part in entry.items():
            yield from links(part, title)
    elif isinstance(entry, list):
        for part in entry:
            yield from links(part)
    elif not entry.startswith((*GENERATED, "http")):
        yield name, entry


def llms(
    menu: list[Any],
    head: dict[str, str],
    text_of: Callable[[str], str],
    address_of: Callable[[str], str],
) -> str:
    """The text of llms.txt.

    Args:
        menu: Sections, as in `nav` of MkDocs.
        head: Title and summary of the site.
        text_of: A function from the path of a page to its Markdown.
        address_of: A function from the path of a page to its address.
    """
    assistants = address_of("project/assistants.md")
    lines = [HEAD.format(**head, assistants=assistants)]
    for section in menu:
        ((heading, entries),) = section.items()
        lines.append(f"## {heading}\n")
        for name, path in links(entries):
            text = text_of(path)
            about = description(text)
            link = f"- [{name or title(text)}]({address_of(path)})"
            lines.append(f"{link}: {about}" if about else link)
        lines.append("")
    return "\n".join(lines)
