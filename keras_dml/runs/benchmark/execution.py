"""What the workers of a benchmark do: they build models, and train runs."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import keras
import psutil

from keras_dml.data import DataSplits
from keras_dml.embedding.work import Work
from keras_dml.recipes import building
from keras_dml.resuming import TERMINATED, StateError
from keras_dml.runs.benchmark.plan import Run
from keras_dml.runs.folder import changed_settings
from keras_dml.runs.outcome import Outcome
from keras_dml.runs.training import check_start, train, try_out


class Building(Work[Run, str | None]):
    """Builds the models of runs; a result says why that is not possible."""

    def start(self) -> Callable[[Run], str | None]:
        splits: dict[str, DataSplits] = {}

        def build(run: Run) -> str | None:
            recipe = run.recipe
            about = repr((recipe.data, recipe.train_on, recipe.seed))
            try:
                check_start(recipe, [])
                if about not in splits:  # Of one data set at a time.
                    splits.clear()
                    splits[about] = building.splits(recipe)
                try_out(recipe, splits[about])
            except Exception as error:
                return f"{recipe.name}: {error}"
            finally:
                keras.utils.clear_session()
            return None

        return build

    def called(self, task: Run) -> str:
        return f"the model of {task.title}"


class Training(Work[Run, str | None]):
    """Trains runs; a result says why a run failed, None if it did not."""

    def start(self) -> Callable[[Run], str | None]:
        return _trained

    def called(self, task: Run) -> str:
        return task.title


def _trained(run: Run) -> str | None:
    if run.log.exists():  # It is removed before a run begins.
        return (
            f"The process died, probably because memory ran out; see {run.log}."
        )
    keras.utils.clear_session()  # Of the worker's run before.
    with _printed_to(run.log):
        try:
            return _unsaved(run)
        except SystemExit as error:  # After SIGTERM; the state is written.
            os._exit(int(error.code or 0))
        except Exception as problem:  # Whatever it is, the others go on.
            traceback.print_exc()
            return f"{type(problem).__name__}: {problem}"


def _unsaved(run: Run) -> str | None:
    """Trains a run; says what could not be saved, if it was not all."""

    def trained(resume: bool) -> Outcome | None:
        return train(
            run.recipe, run.folder, verbose=2, resume=resume,
            overwrite=not resume, save_every=run.save_every,
        )  # fmt: skip

    try:
        # One that had not ended, with other settings, is replaced.
        outcome = trained(not changed_settings(run.folder, run.recipe))
    except StateError as error:
        print(f"Trained again from the beginning: {error}")
        outcome = trained(False)
    return "; ".join(outcome.unsaved_lines()) or None if outcome else None


@contextmanager
def _printed_to(path: Path) -> Iterator[None]:
    """Has a new file receive what is printed, also by C++."""
    before = [os.dup(number) for number in (1, 2)]
    with path.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, old in enumerate(before, 1):
            os.dup2(old, number)
            os.close(old)


@contextmanager
def sigterm_passed_on() -> Iterator[None]:
    """On SIGTERM, has workers write their states, and ends with status 75."""

    def pass_on(*_: object) -> None:
        workers = [
            process
            for process in psutil.Process().children()
            if "resource_tracker" not in " ".join(process.cmdline())
        ]
        for process in workers:
            process.terminate()
        psutil.wait_procs(workers)
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
