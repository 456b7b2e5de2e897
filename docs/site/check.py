"""Checks a built site: `python docs/site/check.py FOLDER`.

Nothing is loaded from another host, every file that a page refers to is
there, every image has a text of its own, headings skip no level, and every
public name of the package has a docstring, which is on a page.
"""

import re
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import public_names

PACKAGE = Path(__file__).parents[2]
LOADED = {"script", "img", "source", "iframe", "audio", "video", "embed"}
CSS_ADDRESS = re.compile(r"""url\(\s*["']?(?:https?:)?//[^)]*\)|@import[^;]*""")


class Page(HTMLParser):
    """What a page loads, links to, shows and is structured by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.without_text: list[str] = []
        self.levels: list[int] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        of = {name: value or "" for name, value in attrs}
        self.ids.add(of.get("id", ""))
        if tag in LOADED:
            self.loaded += [of[x] for x in ("src", "srcset") if x in of]
        if tag == "link" and of.get("rel") not in ("next", "prev", "canonical"):
            self.loaded.append(of.get("href", ""))
        if tag == "a" and "href" in of:
            self.linked.append(of["href"])
        text = of.get("alt", "").strip()
        if tag == "img" and (not text or text.startswith("No description")):
            self.without_text.append(of.get("src", "")[:80])
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))


def faults(page: Page, path: Path, root: Path) -> list[str]:
    found = [f"an image without a text: {x}" for x in page.without_text]
    steps = zip([0, *page.levels], page.levels, strict=False)
    found += [f"heading {b} after {a}" for a, b in steps if b > a + 1]
    if page.levels.count(1) != 1:
        found.append(f"{page.levels.count(1)} headings of level 1")
    for address in page.loaded:
        if urlsplit(address).netloc:
            found.append(f"loads {address}")
    for address in page.loaded + page.linked:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        base = root if parts.path.startswith("/") else path.parent
        if not (base / unquote(parts.path).lstrip("/")).exists():
            found.append(f"there is no {address}")
    return found


def undocumented(pages: Iterable[Page]) -> list[str]:
    ids = set().union(*(page.ids for page in pages))
    names = list(public_names.public(public_names.load(str(PACKAGE))))
    # What several packages export is described once; a module is its parts.
    shown = {x.canonical_path for x in names if x.path in ids or x.is_module}
    return [f"{x.path} has no docstring" for x in names if not x.docstring] + [
        f"{x.path} is on no page of docs/reference"
        for x in names
        if x.canonical_path not in shown
    ]


def main(root: Path) -> int:
    pages = {
        path: Page(path.read_text())
        for path in sorted(root.rglob("*.html"))
        if path.name != "404.html"
    }
    found = [
        f"{path.relative_to(root)}: {fault}"
        for path, page in pages.items()
        for fault in faults(page, path, root)
    ]
    found += [
        f"{path.relative_to(root)}: loads {address}"
        for path in sorted(root.rglob("*.css"))
        for address in CSS_ADDRESS.findall(path.read_text())
    ]
    found += undocumented(pages.values())
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
