"""Training of several recipes with several seeds, resumed where it ended."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import keras
import psutil

from keras_dml.data import DataSplits
from keras_dml.embedding.local import LocalWorkers
from keras_dml.embedding.workers import Pool, Work
from keras_dml.recipes import RecipeError
from keras_dml.resuming import TERMINATED, StateError
from keras_dml.runs.benchmark.comparison import Done, Line
from keras_dml.runs.benchmark.plan import (
    SEPARATOR,
    Entry,
    Plan,
    Run,
    append_entry,
    read_journal,
)
from keras_dml.runs.benchmark.report import write_report
from keras_dml.runs.folder import changed_settings, load_outcome
from keras_dml.runs.training import prepare, train
from keras_dml.utils.arguments import check_count
from keras_dml.utils.files import one_at_a_time
from keras_dml.utils.progress import time_left


def benchmark(
    plan: Plan,
    command: str,
    *,
    jobs: int = 1,
    retry: bool = False,
    echo: Callable[[str], None] = lambda line: None,
    pool: Pool | None = None,
) -> tuple[list[Entry], list[Line]]:
    """Trains the remaining runs of a plan, and writes the tables.

    It can be killed at any moment: the next call with the same plan resumes the
    unfinished runs from their last saved states. If a run fails, this is
    recorded, and the other runs continue.

    Args:
        plan: See `read_plan`.
        command: The command line, for the head of the report.
        jobs: Number of runs that are trained at the same time.
        retry: Whether runs that have failed are done again.
        echo: Receives a line when a run starts and when it ends.
        pool: What trains the runs; by default, `jobs` processes that share the
            cores and take turns at the GPUs.

    Returns:
        How each run of the plan ended, and what they say together.

    Raises:
        RecipeError: If a recipe was changed after a run of it had ended, or a
            model cannot be built, which is tried before the first run.
        ValueError: If `jobs` is not a positive number.
        BlockingIOError: If another benchmark is at work in the folder.
        KeyboardInterrupt: On Ctrl-C, after the tables of the runs that
            are done were written.
        SystemExit: On SIGTERM, likewise, after the runs wrote their states.
    """
    check_count("benchmark", "jobs", jobs)
    pool = LocalWorkers(jobs) if pool is None else pool
    with one_at_a_time(plan.output, "benchmark"):
        done = _done(plan, retry)
        remaining = [run for run in plan.runs() if run.key not in done]
        try:
            with sigterm_passed_on():
                _try_out(remaining, pool, echo)
                for entry in _executed(remaining, pool, echo):
                    append_entry(plan.output, entry)
                    done[entry.key] = entry
                    is_last = len(done) == len(plan.runs())
                    if not is_last and len(done) % len(plan.recipes) == 0:
                        write_report(plan, done, command)
        finally:
            found = write_report(plan, done, command)
    return [done[run.key] for run in plan.runs()], found


def _try_out(
    remaining: list[Run], pool: Pool, echo: Callable[[str], None]
) -> None:
    """Raises `RecipeError` if recipes have runs that would fail at once."""
    first: dict[str, Run] = {}
    for run in remaining:
        first.setdefault(run.recipe.name, run)
    if not first:
        return
    echo(f"Building {', '.join(first)}")
    results = {
        run.key: problem
        for run, problem in pool.run(Building(), first.values())
    }
    problems = [x for run in first.values() if (x := results[run.key])]
    if problems:
        raise RecipeError(
            "All recipes of a benchmark must be such that training can begin. "
            "Received:\n" + "\n".join(problems)
        )


def _executed(
    remaining: list[Run], pool: Pool, echo: Callable[[str], None]
) -> Iterator[Entry]:
    """Runs what is not done yet; yields how each run ended."""
    start, ended = time.monotonic(), 0

    def begun() -> Iterator[Run]:
        for number, run in enumerate(remaining, 1):
            run.log.parent.mkdir(parents=True, exist_ok=True)
            run.log.unlink(missing_ok=True)
            left = time_left(time.monotonic() - start, ended, len(remaining))
            echo(f"[{number}/{len(remaining)}] {run.title} ({run.log}){left}")
            yield run

    for run, error in pool.run(Training(), begun()):
        ended += 1
        entry = _ended(run, error)
        echo(f"    {run.title}: {_outcome(entry)}")
        yield entry


def _done(plan: Plan, retry: bool) -> Done:
    """Entries of the runs of the plan that need not be done again."""
    entries = read_journal(plan.output)
    done = {}
    for run in plan.runs():
        entry = entries.get(run.key)
        if entry is None or (entry.error is not None and retry):
            continue
        changes = []
        if entry.digest != run.digest:
            changes = changed_settings(run.folder, run.recipe)
        if not changes:
            done[run.key] = entry
        elif entry.error is None:
            raise RecipeError(
                f"The recipe {run.recipe.name!r} must be the one that was "
                f"trained. Its result for seed {run.recipe.seed} is in "
                f"{run.folder}, but these settings have changed:\n  "
                + "\n  ".join(changes)
                + f"\nGive it another name (RECIPE{SEPARATOR}name=NAME), or "
                "use another --output."
            )
    return done


def _ended(run: Run, error: str | None) -> Entry:
    head = (*run.key, run.digest)
    if error is not None:
        return Entry(*head, error=error)
    outcome = load_outcome(run.folder)
    return Entry(
        *head,
        metrics={
            **outcome.after,
            **{f"{k}, refit": x for k, x in (outcome.refit or {}).items()},
        },
        best_epoch=outcome.best_epoch,
        seconds=outcome.seconds["training"],
        images_per_second=outcome.images_per_second,
        test_set=outcome.test_set,
        environment=outcome.environment,
    )


def _outcome(entry: Entry) -> str:
    if entry.metrics is None:
        return f"failed: {entry.error}"
    values = ", ".join(f"{k} {v:.4f}" for k, v in entry.metrics.items())
    return f"{values} ({entry.seconds:.0f} s)"


class Building(Work[Run, str | None]):
    """Builds the models of runs; a result says why that is not possible."""

    def start(self) -> Callable[[Run], str | None]:
        splits: dict[str, DataSplits] = {}

        def build(run: Run) -> str | None:
            recipe = run.recipe
            about = repr((recipe.data, recipe.train_on, recipe.seed))
            try:
                recipe.check_files()
                if about not in splits:  # Of one data set at a time.
                    splits.clear()
                    splits[about] = recipe.data.load(
                        recipe.seed, recipe.train_on
                    )
                prepare(recipe, splits[about])
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
    begun = partial(
        train, run.recipe, run.folder, verbose=2, save_every=run.save_every
    )
    # One that had not ended, with other settings, is replaced.
    is_same = not changed_settings(run.folder, run.recipe)
    try:
        outcome = begun(resume=is_same, overwrite=not is_same)
    except StateError as error:
        print(f"Trained again from the beginning: {error}")
        outcome = begun(overwrite=True)
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
