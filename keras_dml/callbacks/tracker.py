"""Tracker: the base class of callbacks for experiment trackers."""

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np

from keras_dml.callbacks.logs import is_due
from keras_dml.data import Examples
from keras_dml.data.as_examples import as_examples
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import this_worker
from keras_dml.evaluation import Results, bootstrap, embed
from keras_dml.utils.arguments import Checked
from keras_dml.utils.types import Count, FloatArray
from keras_dml.visualization import retrieval_grid

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

logger = logging.getLogger(__name__)

Status = Literal["finished", "failed", "interrupted"]

MOST_FAILURES = 3
"""Failures in a row after which a tracker is not tried until the end."""


def retrieval_picture(
    model: keras.Model,
    images: Examples,
    embeddings: FloatArray,
    num_queries: int,
    seed: int,
) -> "DataFigure":
    """A few random queries and their nearest images.

    The queries are the same in every epoch.

    Args:
        model: The model that embedded the images in its test view.
        images: The N examples.
        embeddings: (N, D).
        num_queries: The largest number of rows of the grid.
        seed: Seed of the selection.
    """
    rng = np.random.default_rng(seed)
    count = min(num_queries, len(embeddings))
    queries = np.sort(rng.choice(len(embeddings), count, replace=False))
    return retrieval_grid(images, embeddings, queries, images.view_for(model))


class Tracker(Checked, keras.callbacks.Callback, ABC):
    """Logs training to an experiment tracker; a base class.

    The tracked run has the configuration as its parameters, the logs of every
    epoch as metrics, and a retrieval grid of `images` as a figure.
    `log_results` adds final metrics with 95 % intervals, and `log_files` adds
    files.

    A tracker never interrupts training. If its server cannot be reached or its
    disk is full, a warning is logged and training continues; unsent metrics are
    sent with the next ones. After three failures in a row, the tracker is only
    tried again when training ends.

    If training is resumed with `callbacks.Resume`, the same tracked run
    continues. With several workers, only the first one logs.

    Args:
        config: The parameters: numbers, strings, or lists and dicts of these.
        name: The name of the tracked run; None leaves it to the tracker.
        images: Examples for the retrieval grid, for instance of validation
            classes: a set with labels, or arrays `(x, y)`. None for no grid.
        every: Number of epochs between two grids. The last epoch always has
            one.
        num_queries: Number of queries in the grid.
        seed: Seed of the selection of queries.
        finish: Whether the tracked run ends with `fit`. With False, it stays
            open for `log_results` and `log_files` until `finish()` is called.

    Attributes:
        run_id: The id of the tracked run; None before it has begun.
        seconds: Time spent on tracking so far.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        images: Any = None,
        every: Count = 1,
        num_queries: Count = 6,
        seed: int = 0,
        finish: bool = True,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.config = dict(config or {})
        self.name = name
        self.images = (
            None if images is None else as_examples(images, "images", owner)
        )
        self.every = every
        self.num_queries = num_queries
        self.seed = seed
        self.finishes = finish
        self.run_id: str | None = None
        self.seconds = 0.0
        self._is_open = False
        self._failures = 0
        self._unsent: list[dict[str, Any]] = []

    # To be implemented for each tracker. Any of these methods may raise.

    @abstractmethod
    def _open(self) -> None:
        """Begins a run and sets `run_id`; continues `run_id` if it is set."""

    @abstractmethod
    def _write_metrics(self, metrics: dict[str, float], epoch: int) -> None:
        """Logs metrics of an epoch, which is counted from 1."""

    @abstractmethod
    def _write_results(self, metrics: dict[str, float]) -> None:
        """Logs metrics of the whole run."""

    @abstractmethod
    def _write_figure(
        self, name: str, figure: "DataFigure", epoch: int
    ) -> None:
        """Logs a figure of an epoch."""

    @abstractmethod
    def _write_files(self, paths: list[Path]) -> None:
        """Logs files; those that end in `.keras` are models."""

    @abstractmethod
    def _close(self, status: Status) -> None:
        """Ends the run."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._try("begin the run", lambda: None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not self._is_chief:
            return
        metrics = {name: float(value) for name, value in (logs or {}).items()}
        self._unsent.append({"epoch": epoch + 1, "metrics": metrics})
        self._try("log metrics", self._send)
        if is_due(epoch, self.every, self.params["epochs"]):
            self._log_grid(epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        if self.finishes:
            self.finish()

    def log_results(self, results: Results, prefix: str = "test/") -> None:
        """Logs final metrics with their 95 % intervals over the queries.

        `test/map@r` is the value; `test/map@r/low` and `test/map@r/high` are
        the limits of its interval.

        Args:
            results: The result of `evaluate`.
            prefix: Prefix of the names.
        """
        found = {f"{prefix}{name}": x for name, x in results.items()}
        intervals = bootstrap(results) if results.per_query else {}
        for name, interval in intervals.items():
            found[f"{prefix}{name}/low"] = interval.low
            found[f"{prefix}{name}/high"] = interval.high
        known = {k: float(v) for k, v in found.items() if np.isfinite(v)}
        self._failures = 0
        self._try("log results", partial(self._write_results, known))

    def log_files(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """Logs files as artifacts, `.keras` files as models.

        Args:
            paths: The files; those that do not exist are skipped.
        """
        files = [x for x in map(Path, paths) if x.is_file()]
        self._failures = 0
        self._try("log files", partial(self._write_files, files))

    def finish(self, status: Status = "finished") -> None:
        """Sends unsent metrics and ends the tracked run.

        Args:
            status: How the training ended: "finished", "failed" or
                "interrupted".
        """
        self._failures = 0
        if self._unsent:
            self._try("log metrics", self._send)
        if self._is_open:
            self._try("end the run", partial(self._close, status))
            self._is_open = False

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {
            "run_id": self.run_id,
            "unsent": self._unsent,
            "seconds": self.seconds,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self.run_id = state["run_id"]
        self._unsent = state["unsent"]
        self.seconds = state["seconds"]

    @property
    def _is_chief(self) -> bool:
        return this_worker(strategy_of(self.model)).is_chief

    def _send(self) -> None:
        while self._unsent:
            row = self._unsent[0]
            self._write_metrics(row["metrics"], row["epoch"])
            self._unsent.pop(0)

    def _log_grid(self, epoch: int) -> None:
        if self.images is None or self._failures >= MOST_FAILURES:
            return
        start = time.perf_counter()
        figure = retrieval_picture(
            self.model,
            self.images,
            embed(self.model, self.images),
            self.num_queries,
            self.seed,
        )
        self.seconds += time.perf_counter() - start
        write = partial(self._write_figure, "retrieval", figure, epoch)
        self._try("log a figure", write)

    def _try(self, what: str, write: Callable[[], None]) -> None:
        """Runs a call whose failure must not interrupt training."""
        if self._failures >= MOST_FAILURES or not self._is_chief:
            return
        start = time.perf_counter()
        try:
            if not self._is_open:
                self._open()
                self._is_open = True
            write()
        except Exception as error:
            self._failures += 1
            logger.warning(
                "%s could not %s: %s: %s. Training continues%s.",
                type(self).__name__,
                what,
                type(error).__name__,
                error,
                ", and the tracker is tried again at its end"
                if self._failures == MOST_FAILURES
                else "",
            )
        else:
            self._failures = 0
        self.seconds += time.perf_counter() - start
