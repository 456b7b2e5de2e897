"""Service: the model that is served, its gallery, and batches of requests."""

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from keras_dml.search.store import MANIFEST
from keras_dml.serve.current import Current
from keras_dml.serve.errors import Busy
from keras_dml.serve.settings import Settings

logger = logging.getLogger(__name__)

Work: TypeAlias = Callable[[Current, Sequence[Any]], Sequence[Any]]
"""Computes a result for each item with the current model and gallery."""

NUM_WORKERS = 2
"""Batches that run at a time: one computes while another is prepared."""

MAX_PICTURES = 8
"""Pictures of `max_pixels` whose pixels may wait: about 10 s of decoding."""

_LARGE_BATCH_PIXELS = 2**22
"""Pixels of a batch from which memory is released before and after it."""

# Parameters of glibc's mallopt(3), and their values: only two threads have
# heaps of their own, and a large block is mapped separately.
_ARENA_MAX, _NUM_ARENAS = -8, 2
_MMAP_THRESHOLD, _MMAP_BYTES = -3, 2**22

_ignoring_other_allocators = contextlib.suppress(
    OSError, AttributeError, TypeError
)


@dataclass(eq=False)
class _Item:
    """One request's part of a batch."""

    group: tuple[Any, ...]
    current: Current
    work: Work
    value: Any
    size: int
    pixels: int
    future: "asyncio.Future[Any]"


class Service:
    """Batches concurrent requests for the model and gallery served now.

    Concurrent items of one key wait while the workers are busy and then run
    together. Work that decodes pictures has a budget: whatever is decoded at a
    time has at most `max_pixels` pixels in all, or is a single item. Call
    methods in one event loop only; any thread may replace `current`. `on_batch`
    is called with the number of examples of every batch.
    """

    def __init__(self, current: Current, settings: Settings) -> None:
        self.current = current
        self.settings = settings
        self.on_batch: Callable[[int], object] = lambda size: None
        self._queue: deque[_Item] = deque()
        self._running = self._pixels = 0
        self._pool = ThreadPoolExecutor(NUM_WORKERS, "keras-dml-serve")
        self._futures: set[Future[Sequence[Any]]] = set()

    @property
    def waiting(self) -> int:
        return sum(item.size for item in self._queue)

    async def submit(
        self,
        key: str,
        function: Work,
        item: Any,
        *,
        size: int = 1,
        pixels: int = 0,
        current: Current | None = None,
    ) -> Any:
        """Runs one item, possibly in a batch with others; returns its result.

        A caller that stops waiting cancels it; work that has begun is completed
        and its result discarded. If a batch fails, each of its items runs
        alone, so that none harms the others.

        Args:
        key: Items of one key, function and gallery may be joined.
        function: Work on a worker thread.
        item: The item.
        size: Examples in it, for the largest batch and the queue.
        pixels: Pixels that are decoded for it.
        current: The model and gallery that the request began with.
        """
        if self._queue and self.waiting + size > self.settings.queue:
            raise Busy()
        queued = sum(item.pixels for item in self._queue) if pixels else 0
        if queued and queued + pixels > MAX_PICTURES * self.settings.max_pixels:
            raise Busy("many large pictures wait", retry_after=5)
        current = self.current if current is None else current
        group = (key, function, id(current))
        future = asyncio.get_running_loop().create_future()
        self._queue.append(
            _Item(group, current, function, item, size, pixels, future)
        )
        self._start()
        return await future

    def close(self) -> bool:
        """Prevents further batches; returns whether none is running."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not self._futures

    def _start(self) -> None:
        while self._queue and self._running < NUM_WORKERS:
            batch = self._next_batch()
            if not batch:
                return
            pixels = sum(item.pixels for item in batch)
            self._running += 1
            self._pixels += pixels
            task = asyncio.ensure_future(self._run(batch))
            task.add_done_callback(functools.partial(self._end, pixels))

    def _next_batch(self) -> list[_Item]:
        """The oldest item and those that may run with it, in their order.

        If the pixels of an item exceed the budget for now, later ones with
        pixels wait behind it; otherwise small pictures would block a large one.
        """
        batch: list[_Item] = []
        remaining: deque[_Item] = deque()
        size, pixels, is_full = 0, self._pixels, False
        for item in self._queue:
            if item.future.done():  # The request has timed out.
                continue
            fits = not batch or (
                item.group == batch[0].group
                and size + item.size <= self.settings.max_batch
            )
            if item.pixels and pixels:
                is_full |= pixels + item.pixels > self.settings.max_pixels
                fits &= not is_full
            if fits:
                batch.append(item)
                size += item.size
                pixels += item.pixels
            else:
                remaining.append(item)
        self._queue = remaining
        return batch

    async def _run(self, batch: list[_Item]) -> None:
        self.on_batch(sum(item.size for item in batch))
        future = self._pool.submit(_run, batch)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        outcomes = await asyncio.wrap_future(future)
        for item, outcome in zip(batch, outcomes, strict=True):
            if item.future.done():
                continue
            if isinstance(outcome, Exception):
                item.future.set_exception(outcome)
            else:
                item.future.set_result(outcome)

    def _end(self, pixels: int, task: "asyncio.Task[None]") -> None:
        self._running -= 1
        self._pixels -= pixels
        self._start()


def _run(batch: list[_Item]) -> Sequence[Any]:
    """Returns the result or error of each item; releases free memory."""
    if sum(item.pixels for item in batch) < _LARGE_BATCH_PIXELS:
        return _outcomes(batch)
    release_memory()
    try:
        return _outcomes(batch)
    finally:
        release_memory()


def _outcomes(batch: list[_Item]) -> Sequence[Any]:
    first = batch[0]
    try:
        return first.work(first.current, [item.value for item in batch])
    except Exception as error:
        if len(batch) == 1:
            return [error]
    return [_outcomes([item])[0] for item in batch]


class GalleryWatcher:
    """Replaces the gallery of a service whenever its folder is saved again.

    If the new one cannot be loaded, or is gone, the error is logged and the
    previous one is still served, until the folder changes again. `on_reload` is
    called with "ok" or "failed" after each attempt. `problem` describes the
    error, or is None.
    """

    def __init__(self, service: Service, folder: str) -> None:
        self._service, self._folder = service, folder
        self._stamp = self._read_stamp()
        self.on_reload: Callable[[str], object] = lambda outcome: None
        self.problem: str | None = None

    def start(self, seconds: float) -> None:
        """Checks the folder every `seconds` seconds, in a thread."""
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
        # No damaged file may stop the server.
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
        """Identifies a saved index; None if there is none."""
        with contextlib.suppress(OSError):
            status = Path(self._folder, MANIFEST).stat()
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None


def limit_memory() -> None:
    """Makes the allocator of a process of many threads keep less memory."""
    with _ignoring_other_allocators:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _NUM_ARENAS)
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)


def release_memory(collect: bool = False) -> None:
    """Returns free memory, which the allocator keeps, to the system."""
    if collect:  # Garbage collection takes longer.
        gc.collect()
    with _ignoring_other_allocators:
        ctypes.CDLL(None).malloc_trim(0)
