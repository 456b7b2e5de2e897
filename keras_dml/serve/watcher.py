"""Watcher: a gallery that has been saved anew replaces the one before."""

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from keras_dml.search.store import MANIFEST
from keras_dml.serve.memory import release_memory
from keras_dml.serve.service import Service

logger = logging.getLogger(__name__)


class GalleryWatcher:
    """Replaces the gallery of a service whenever its folder is saved anew.

    One that cannot be loaded is logged, and not tried again before it changes;
    the gallery before it is still served. So is one that has gone.

    Args:
        service: The service, whose `current` is replaced.
        folder: The folder of the index.

    Attributes:
        on_reload: Is called with "ok" or "failed" after each attempt.
        problem: What is wrong with the folder; None if it is what is served.
    """

    def __init__(self, service: Service, folder: str) -> None:
        self._service, self._folder = service, folder
        self._stamp = self._read_stamp()
        self.on_reload: Callable[[str], object] = lambda outcome: None
        self.problem: str | None = None

    def start(self, seconds: float) -> None:
        """Looks at the folder every so many seconds, in a thread."""
        never = threading.Event()

        def watch() -> None:
            while not never.wait(seconds):
                self.look()

        threading.Thread(target=watch, daemon=True).start()

    def look(self) -> None:
        """Loads the gallery if it has changed since the last look."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            self.problem = (
                f"The gallery in {self._folder!r} no longer exists; the "
                "previous one is still served."
            )
            logger.warning(self.problem)
            return
        try:
            current = self._service.current.with_gallery(self._folder)
        # A server outlives whatever is wrong with a file.
        except Exception as error:
            self.problem = (
                "The new gallery cannot be loaded; the previous one is still "
                f"served. {type(error).__name__}: {error}"
            )
            logger.exception(self.problem)
            self.on_reload("failed")
            return
        self.problem = None
        self._service.current = current
        logger.info("Serving gallery %d.", current.version)
        release_memory(collect=True)
        self.on_reload("ok")

    def _read_stamp(self) -> tuple[int, ...] | None:
        """What identifies a saved index; None if there is none."""
        with contextlib.suppress(OSError):
            status = Path(self._folder, MANIFEST).stat()
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None
