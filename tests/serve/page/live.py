"""A browser that visits the page of a server."""

import json
import time
from pathlib import Path
from typing import Any

from tests.reports.browser import Browser

SENT = """
const [bytes, name, kind, how] = arguments;
const data = new DataTransfer();
const content = Uint8Array.from(atob(bytes), (x) => x.charCodeAt(0));
data.items.add(new File([content], name, { type: kind }));
document.querySelector('#drop').dispatchEvent(how === 'drop'
    ? new DragEvent('drop', { dataTransfer: data, bubbles: true })
    : new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
"""
"""Drops or pastes a file, as the browser hands it to the page."""


class Visitor(Browser):
    """A browser that visits pages of a server."""

    def visit(self, url: str) -> None:
        """Opens the page, and waits until it says what is served."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})
        self.until(
            "return document.readyState === 'complete' && "
            "!document.getElementById('layout').inert"
        )

    def until(self, script: str, seconds: float = 30) -> Any:
        """Waits until JavaScript returns something that is true."""
        deadline = time.monotonic() + seconds
        while not (result := self.run(script)):
            if time.monotonic() > deadline:
                said = self.run("return document.body.innerText")
                raise TimeoutError(f"{script}: {said}")
            time.sleep(0.05)
        return result

    def text(self, selector: str) -> str:
        """The text of the first element that fits."""
        script = f"return document.querySelector({json.dumps(selector)})"
        text: str = self.run(f"{script}.textContent")
        return text

    def texts(self, selector: str) -> list[str]:
        """The text of each element that fits."""
        query = f"document.querySelectorAll({json.dumps(selector)})"
        texts: list[str] = self.run(
            f"return [...{query}].map((x) => x.textContent)"
        )
        return texts

    def choose(self, path: Path, field: str = "#file") -> None:
        """Chooses a file, as with the dialog of the browser."""
        self.type(field, str(path))

    def type(self, selector: str, text: str) -> None:
        """Types into a field."""
        self._call(
            "POST", f"/element/{self._find(selector)}/value", {"text": text}
        )

    def answered(self) -> None:
        """Waits until the page has shown the answer, or an error."""
        self.until(
            "return !document.getElementById('results')"
            ".hasAttribute('aria-busy') && "
            "(!document.getElementById('error').hidden || "
            "!document.getElementById('found').hidden)"
        )
