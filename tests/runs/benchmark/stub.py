"""Runs that end at once, with results made from the recipe and the seed."""

import functools
from collections.abc import Generator, Iterable
from itertools import islice

import numpy as np

from keras_dml.embedding.workers import Pool, Work
from keras_dml.evaluation import Results, evaluate_embeddings
from keras_dml.runs.benchmark.plan import Run
from keras_dml.runs.benchmark.training import Building
from keras_dml.runs.folder import create_folder, write_outcome
from keras_dml.runs.outcome import Outcome

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
    """The more epochs, the less noise."""
    return _results(run.recipe.seed, run.recipe.epochs, classes)


def finish(run: Run, test_set: str = "same", classes: int = 20) -> None:
    """Leaves behind what a run leaves behind, but for its models."""
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
                 "division": 0.0, "trackers": 0.0},
        images_per_second=100.0,
        interrupted=False,
        test_set=test_set,
        environment={"hardware": "2 CPU cores", "keras": "3", "code": "a"},
    )  # fmt: skip
    write_outcome(folder, outcome)


class Stub(Pool):
    """A pool that notes what it did; of several runs the last ends first.

    Args:
        fails: Message for each name of a recipe that fails.
        stops: The number of the run, from 1, at which Ctrl-C is pressed.
        problem: What building the models says.
        jobs: How many runs have begun at a time.
    """

    def __init__(
        self,
        fails: dict[str, str] | None = None,
        stops: int = 0,
        problem: str | None = None,
        jobs: int = 1,
    ) -> None:
        self.done: list[tuple[str, int]] = []
        self.tried: list[tuple[str, int]] = []
        self.jobs = jobs
        self._fails = fails or {}
        self._stops = stops
        self._problem = problem

    def run(
        self, work: Work[Run, str | None], tasks: Iterable[Run]
    ) -> Generator[tuple[Run, str | None]]:
        if isinstance(work, Building):
            for run in tasks:
                self.tried.append(run.key)
                yield run, self._problem
            return
        left = iter(tasks)
        begun = list(islice(left, self.jobs))
        while begun:
            run = begun.pop()
            yield run, self._result(run)
            begun += islice(left, 1)

    def _result(self, run: Run) -> str | None:
        if len(self.done) + 1 == self._stops:
            create_folder(run.folder, run.recipe, overwrite=True)
            (run.folder / "last.keras").write_text("half a model")
            raise KeyboardInterrupt
        self.done.append(run.key)
        if run.recipe.name in self._fails:
            return self._fails[run.recipe.name]
        finish(run)
        return None
