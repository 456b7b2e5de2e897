"""Finder: from the bytes of a picture to what the page shows of it."""

import threading
from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from keras_dml.serve.current import Current
from keras_dml.serve.limits import check_picture
from keras_dml.serve.memory import release_memory
from keras_dml.serve.page.about import refusal
from keras_dml.serve.page.finding import Query, find
from keras_dml.serve.page.outputs import Outputs
from keras_dml.serve.page.requests import Wanted
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings

KEY = "page"
"""Queries of the page are joined with each other alone."""


class Finder:
    """Finds pictures by what is served now.

    Args:
        service: Runs the model.
        settings: The limits.
    """

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._latest: Outputs | None = None
        self._lock = threading.Lock()

    async def outputs(self, current: Current) -> Outputs | None:
        """What the model says of a picture; None if it takes none."""
        return await run_in_threadpool(self._outputs_of, current)

    async def find(self, data: bytes, wanted: Wanted) -> dict[str, Any]:
        """What is found for an image file; see `finding.find`.

        Raises:
            ValueError: If the file cannot be read, if the gallery cannot be
                searched so, or if the model takes no pictures.
            Busy, TimeoutError: As `Service.submit`.
        """
        current = self._service.current
        if current.view is None:
            raise ValueError(refusal(current))
        if current.index is None and (wanted.where or wanted.exclude):
            raise ValueError(
                "There is no gallery to search. Received: a filter. Start the "
                "server with --gallery."
            )
        pixels = await run_in_threadpool(
            check_picture, data, self._settings.max_pixels, current.view
        )
        query = Query(data, wanted.k, wanted.where, wanted.exclude)
        found: dict[str, Any] | ValueError = await self._service.submit(
            KEY, self._find, query, pixels=pixels, current=current
        )
        if isinstance(found, ValueError):
            raise found
        return found

    def _find(
        self, current: Current, queries: Sequence[Query]
    ) -> list[dict[str, Any] | ValueError]:
        outputs = self._outputs_of(current)
        if outputs is None:
            raise ValueError("The model does not take pictures.")
        return find(current, outputs, queries)

    def _outputs_of(self, current: Current) -> Outputs | None:
        # One thread compiles, and the others wait for it.
        with self._lock:
            model, view = current.model, current.view
            if self._latest is None or self._latest.model is not model:
                if model is None or view is None:
                    return None
                self._latest = Outputs(model, view)
                release_memory(collect=True)
            return self._latest
