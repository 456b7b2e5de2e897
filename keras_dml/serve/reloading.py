"""Reloading: a new version is served as soon as it has been loaded."""

import logging
from collections.abc import Callable

from keras_dml.serve.current import Current
from keras_dml.serve.loading import load, with_gallery
from keras_dml.serve.memory import release_memory
from keras_dml.serve.service import Service
from keras_dml.serve.sources import Source, Stamp

logger = logging.getLogger(__name__)

OK, FAILED = "ok", "failed"


class Reloader:
    """Looks at the sources when it is told to, and loads what is new.

    A version that cannot be loaded is logged, and not tried again before it
    changes; what was served before still is. So is what has gone.

    Args:
        service: Whose `current` is replaced.
        source: Where to look.
        stamps: What was there before `current` was loaded.

    Attributes:
        on_reload: Is called with "ok" or "failed" after each attempt.
        loading: What is being loaded; None if nothing is.
        problem: What is wrong with the files now in place; None if they are
            served.
    """

    def __init__(
        self,
        service: Service,
        source: Source,
        stamps: tuple[Stamp, Stamp],
    ) -> None:
        self._service, self._source = service, source
        self._seen, self._served = stamps, stamps[0]
        self.on_reload: Callable[[str], object] = lambda outcome: None
        self.loading: str | None = None
        self.problem: str | None = None

    def look(self) -> None:
        """Loads what has changed since the last look, if anything has."""
        stamps = self._source.stamps()
        if stamps == self._seen:
            return
        # Not of the last look: that one may not have been loaded.
        is_gallery = stamps[0] == self._served
        self._seen = stamps
        if missing := self._missing(stamps):
            self.problem = (
                f"{missing} no longer exists; the loaded version is still "
                "served."
            )
            logger.warning(self.problem)
            return
        self.loading = "the gallery" if is_gallery else "a new version"
        logger.info("Loading %s.", self.loading)
        try:
            current = self._loaded(is_gallery)
        # A server outlives whatever is wrong with a file.
        except Exception as error:
            self.problem = (
                "The new version cannot be loaded; the previous one is still "
                f"served. {type(error).__name__}: {error}"
            )
            logger.exception(self.problem)
            self.on_reload(FAILED)
            return
        finally:
            self.loading = None
        self.problem = None
        self._service.current, self._served = current, stamps[0]
        logger.info("Serving version %d of %s.", current.version, current.name)
        release_memory(collect=True)
        self.on_reload(OK)

    def _loaded(self, is_gallery: bool) -> Current:
        """What is on disk now; only the gallery, if nothing else is new."""
        now = self._service.current
        found = with_gallery(now, self._source) if is_gallery else None
        return found or load(self._source, now.version)

    def _missing(self, stamps: tuple[Stamp, Stamp]) -> str | None:
        if stamps[0] is None:
            return f"The model in {str(self._source.path)!r}"
        if self._source.gallery is not None and stamps[1] is None:
            return f"The gallery in {self._source.gallery!r}"
        return None
