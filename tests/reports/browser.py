"""A headless Chromium, driven over the WebDriver protocol."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

KEYS = {"Enter": "\ue007", "Tab": "\ue004", "ArrowLeft": "\ue012",
        "ArrowRight": "\ue014", "ArrowDown": "\ue015"}  # fmt: skip

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def is_there() -> bool:
    """Whether Chromium and its driver are installed."""
    return bool(_chromium() and shutil.which("chromedriver"))


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One page at a time, with a profile of its own.

    Args:
        profile: An empty folder.
    """

    def __init__(self, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._root = ""
        try:
            self._wait()
            self._open(profile)
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._stop()

    def _stop(self) -> None:
        self._driver.terminate()
        self._driver.wait(20)

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _open(self, profile: Path) -> None:
        options = {
            "binary": _chromium(),
            "args": [*FLAGS, f"--user-data-dir={profile}"],
        }
        capabilities = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._call(
            "POST", "/session", {"capabilities": {"alwaysMatch": capabilities}}
        )
        self._root = f"/session/{answer['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        if method == "POST" and body is None:
            body = {}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{self._root}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Sends a command of the DevTools protocol."""
        body = {"cmd": command, "params": parameters}
        return self._call("POST", "/goog/cdp/execute", body)

    def look(self, width: int, height: int, scheme: str) -> None:
        """Sets the size of the window and the color scheme."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width,
                      height=height, deviceScaleFactor=1,
                      mobile=width < 600)  # fmt: skip
        features = {
            "prefers-color-scheme": scheme,
            # A click must not have to wait for the page to have scrolled.
            "prefers-reduced-motion": "reduce",
        }
        self.devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": k, "value": v} for k, v in features.items()],
        )

    def open(self, page: Path) -> None:
        """Opens a file and waits until all of it has loaded."""
        # Another address between the two tells an old page from a new one.
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": page.as_uri()})
        # On a busy machine the driver answers before the page is read.
        loaded = "return [location.href, document.readyState]"
        deadline = time.monotonic() + 60
        while self.run(loaded) != [page.as_uri(), "complete"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{page} did not load")
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Runs JavaScript in the page and returns what it returns."""
        body = {"script": script, "args": arguments}
        return self._call("POST", "/execute/sync", body)

    def click(self, selector: str) -> None:
        """Clicks with the mouse on the first element that fits."""
        self._call("POST", f"/element/{self._find(selector)}/click")

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other, wherever the focus is."""
        actions = [
            {"type": kind, "value": KEYS[key]}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._call("POST", "/actions", {"actions": [source]})

    def messages(self) -> list[str]:
        """Console messages since the last call."""
        log = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in log]

    def _find(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        element: str = self._call("POST", "/element", body)[ELEMENT]
        return element
