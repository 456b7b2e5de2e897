"""A server in this process, and a browser that visits its page."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from keras_dml.serve.app import application
from keras_dml.serve.current import Current
from keras_dml.serve.server import running, server_of
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings, address_of, bind
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


@contextmanager
def serving(now: Current, **settings: Any) -> Iterator["Live"]:
    """A server of the address `url`, until the block ends."""
    limits = Settings(port=0, **settings)
    service = Service(now, limits)
    server = server_of(application(service, limits), limits)
    with closing(bind(limits)) as opened:
        opened.listen()
        with running(server, opened):
            yield Live(f"{address_of(opened)}/", service)


class Live:
    """A running server."""

    def __init__(self, url: str, service: Service) -> None:
        self.url, self.service = url, service


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
        while not (found := self.run(script)):
            if time.monotonic() > deadline:
                said = self.run("return document.body.innerText")
                raise TimeoutError(f"{script}: {said}")
            time.sleep(0.05)
        return found

    def text(self, selector: str) -> str:
        """The text of the first element that fits."""
        script = f"return document.querySelector({json.dumps(selector)})"
        found: str = self.run(f"{script}.textContent")
        return found

    def texts(self, selector: str) -> list[str]:
        """The text of each element that fits."""
        query = f"document.querySelectorAll({json.dumps(selector)})"
        found: list[str] = self.run(
            f"return [...{query}].map((x) => x.textContent)"
        )
        return found

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
