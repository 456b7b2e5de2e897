"""Stub trainings with results computed from recipe and seed."""

import contextlib
import functools
import signal
import threading
from collections.abc import Iterator
from unittest import mock

import numpy as np

from keras_dml.evaluation import Results, evaluate_embeddings
from keras_dml.resuming import TERMINATED
from keras_dml.runs.folder import create_folder, write_outcome
from keras_dml.runs.outcome import Outcome
from keras_dml.runs.plan import Run

METRICS = ("recall@1", "map@r", "nmi")


@functools.cache
def _results(seed: int, epochs: int, classes: int) -> Results:
    rng = np.random.default_rng([seed, epochs])
    labels = np.repeat(np.arange(classes), 5)
    centres = np.random.default_rng(9).standard_normal((classes, 6))
    noise = rng.standard_normal((len(labels), 6))
    x = centres[labels] + noise * 4 / (epochs + 2)
    return evaluate_embeddings(x, labels, metrics=METRICS)


def results_of(run: Run, classes: int = 20) -> Results:
    """Results with less noise for more epochs."""
    return _results(run.recipe.seed, run.recipe.epochs, classes)


def finish(run: Run, test_set: str = "same", classes: int = 20) -> None:
    """Writes the files of a run, except its models."""
    folder = create_folder(run.folder, run.recipe, overwrite=True)
    results = results_of(run, classes)
    outcome = Outcome(
        recipe=run.recipe,
        images={"train": 30, "validation": 6, "test": 5 * classes},
        before=dict(results),
        after=results,
        best_epoch=1,
        monitored=0.5,
        divisions=[],
        seconds={"training": 10.0 + run.recipe.seed, "evaluation": 1.0,
                 "division": 0.0},
        images_per_second=100.0,
        interrupted=False,
        test_set=test_set,
        environment={"hardware": "2 CPU cores", "keras": "3", "code": "a"},
    )  # fmt: skip
    write_outcome(folder, outcome)


class Stub:
    """Takes the place of `start_training`.

    Args:
        fails: Message for each name of a recipe that fails.
        stops: The number of the run, from 1, at which Ctrl-C is pressed.

    Attributes:
        keys: Runs that have ended.
        jobs: The numbers of jobs that it was called with.
    """

    def __init__(
        self, fails: dict[str, str] | None = None, stops: int = 0
    ) -> None:
        self.keys: list[tuple[str, int]] = []
        self.jobs: set[int] = set()
        self._fails = fails or {}
        self._stops = stops

    def __call__(self, run: Run, jobs: int) -> "Process":
        self.jobs.add(jobs)
        run.folder.parent.mkdir(parents=True, exist_ok=True)
        return Process(functools.partial(self._end, run))

    def _end(self, run: Run, terminated: threading.Event) -> int:
        if len(self.keys) + 1 == self._stops:
            create_folder(run.folder, run.recipe, overwrite=True)
            (run.folder / "last.keras").write_text("half a model")
            # To the main thread, which else does not wake from its wait.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert terminated.wait(10)
            return TERMINATED
        self.keys.append(run.key)
        if run.recipe.name in self._fails:
            run.log.write_text(f"Error: {self._fails[run.recipe.name]}\n")
            return 1
        finish(run)
        return 0


@contextlib.contextmanager
def in_place(stub: Stub) -> Iterator[None]:
    """Has a stub train the runs of benchmarks, whose charts are not drawn.

    Charts take most of the time, and are drawn in test_tables.py.
    """
    with (
        mock.patch("keras_dml.runs.benchmark.start_training", stub),
        mock.patch("keras_dml.runs.benchmark.rehearse"),
        mock.patch("keras_dml.runs.tables._chart", return_value=""),
    ):
        yield


class Process:
    """A process whose work happens when it is joined."""

    def __init__(self, end) -> None:
        self._end = end
        self._terminated = threading.Event()

    def wait(self) -> int:
        return self._end(self._terminated)

    def terminate(self) -> None:
        self._terminated.set()
