"""Benchmarks: several recipes, several seeds, one table.

Their training is resumed where it ended.
"""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from keras_dml.recipes import RecipeError, dump
from keras_dml.resuming import TERMINATED
from keras_dml.runs.folder import changed_settings, load_outcome
from keras_dml.runs.plan import (
    SEPARATOR,
    Entry,
    Plan,
    Run,
    append_entry,
    read_journal,
    read_plan,
)
from keras_dml.runs.tables import Done, Line, write_tables
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.files import one_at_a_time, write_atomically
from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.types import Count

__all__ = ["Plan", "benchmark", "read_plan"]


@check_arguments
def benchmark(
    plan: Plan,
    command: str,
    *,
    jobs: Count = 1,
    retry: bool = False,
    echo: Callable[[str], None] = lambda line: None,
) -> tuple[list[Entry], list[Line]]:
    """Trains the remaining runs of a plan, and writes the tables.

    First, each recipe without an ended run is tried for a step, so mistakes
    show before time is spent. Each run is a process of its own. The next call
    with the same plan resumes unfinished runs from their last saved states. If
    a run fails, this is recorded, and the other runs continue.

    Args:
        plan: See `read_plan`.
        command: The command line, for the head of the report.
        jobs: Number of runs that are trained at the same time; they share the
            cores.
        retry: Whether runs that have failed are done again.
        echo: Receives a line when a run starts and when it ends.

    Returns:
        How each run of the plan ended, and their results by recipe.

    Raises:
        RecipeError: If a recipe was changed after a run of it had ended, or
            cannot be trained for a step.
        ValueError: If `jobs` is not a positive number.
        BlockingIOError: If another benchmark is at work in the folder.
        KeyboardInterrupt: On Ctrl-C, after runs wrote their states, and the
            tables of finished runs were written.
        SystemExit: On SIGTERM, likewise, with status 75.
    """
    with one_at_a_time(plan.output, "benchmark"):
        done = _finished_runs(plan, retry)
        remaining = [run for run in plan.runs() if run.key not in done]
        ended = {name for name, _ in done}
        new = [run for run in remaining if run.recipe.name not in ended]
        first = {run.recipe.name: run for run in reversed(new)}
        with _sigterm_as_exit():
            rehearse(list(first.values()), echo)
        try:
            for entry in _train_all(remaining, jobs, echo):
                append_entry(plan.output, entry)
                done[entry.key] = entry
                if len(done) % len(plan.recipes) == 0:
                    write_tables(plan, done, command)
        finally:
            lines = write_tables(plan, done, command)
    return [done[run.key] for run in plan.runs()], lines


def _finished_runs(plan: Plan, retry: bool) -> Done:
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


def rehearse(runs: list[Run], echo: Callable[[str], None]) -> None:
    """Trains each run for a step, in a process; `RecipeError` if some fail."""
    if not runs:
        return
    echo(f"Trying a step of each recipe first ({len(runs)})")
    paths = {str(_write_recipe(run)): run.recipe.name for run in runs}
    program = "import sys; from keras_dml.runs.training import rehearse; "
    program += "rehearse(sys.argv[2:], sys.argv[1])"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "failures.json"
        words = [sys.executable, "-c", program, str(output), *paths]
        ended = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if not output.exists():
            printed = ended.stdout.decode(errors="replace")[-1000:]
            raise RuntimeError(
                "The process that tries the recipes must end by itself. "
                f"Received: status {ended.returncode}. {printed}"
            )
        failures = json.loads(output.read_text())
    if failures:
        raise RecipeError(
            "Recipes of a benchmark must be trainable, and nothing was trained "
            "yet. Received, from a first step:\n  "
            + "\n  ".join(f"{paths[x]}: {why}" for x, why in failures.items())
            + "\nFix them, or leave them out."
        )


def _write_recipe(run: Run) -> Path:
    """Writes the recipe of a run beside its folder; returns its path."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    path = run.folder.with_suffix(".yaml")
    write_atomically(path, dump(run.recipe))
    return path


def _train_all(
    runs: list[Run], jobs: int, echo: Callable[[str], None]
) -> Iterator[Entry]:
    """Trains runs in processes, and yields the entry of each that ended."""
    start, num_ended = time.monotonic(), 0
    processes: list[subprocess.Popen[bytes]] = []
    is_stopped = threading.Event()

    def train(number: int, run: Run) -> Entry | None:
        if is_stopped.is_set():
            return None
        time_left = ""
        if num_ended:  # The others are assumed to take as long.
            each = (time.monotonic() - start) / num_ended
            seconds = round(each * (len(runs) - num_ended))
            time_left = f", about {datetime.timedelta(seconds=seconds)} left"
        name, seed = run.key
        at = f"[{number}/{len(runs)}]"
        echo(f"{at} {name}, seed {seed} ({run.log}){time_left}")
        process = start_training(run, jobs)
        processes.append(process)
        if is_stopped.is_set():  # While the process was starting.
            process.terminate()
        return _entry(run, process.wait())

    with _sigterm_as_exit(), ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(train, i, run) for i, run in enumerate(runs, 1)]
        try:
            for future in as_completed(futures):
                entry = future.result()
                if entry is not None:
                    num_ended += 1
                    echo(f"    {entry.recipe}, seed {entry.seed}: {entry}")
                    yield entry
        except BaseException:
            is_stopped.set()
            for process in processes:
                process.terminate()
            raise


def start_training(run: Run, jobs: int) -> "subprocess.Popen[bytes]":
    """Starts `keras-dml train` for a run, which prints to its log."""
    recipe = _write_recipe(run)
    # An unfinished run with other settings is replaced.
    is_same = not changed_settings(run.folder, run.recipe)
    mode = "--resume" if is_same else "--overwrite"
    program = "from keras_dml.cli import main; main()"
    words = [sys.executable, "-c", program, "train", str(recipe), mode]
    words += ["--output", str(run.folder)]
    if run.save_every is not None:
        words += ["--save-every", run.save_every]
    threads = str(max(1, usable_cores() // jobs))
    names = "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"
    environment = dict.fromkeys(names, threads) if jobs > 1 else {}
    with run.log.open("wb") as log:
        return subprocess.Popen(
            words,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,  # Ctrl-C reaches only this process.
        )


def _entry(run: Run, status: int) -> Entry | None:
    """The entry of a run that ended with a status; None if it was stopped."""
    head = (*run.key, run.digest)
    if status == TERMINATED:
        return None
    if status < 0:
        return Entry(
            *head,
            error=f"The process died of signal {-status}, perhaps because "
            f"memory ran out; see {run.log}.",
        )
    if status > 0:
        printed = run.log.read_text(errors="replace").strip()
        _, is_message, message = printed.rpartition("Error: ")
        return Entry(*head, error=message if is_message else printed[-1000:])
    outcome = load_outcome(run.folder)
    refit = {f"{k}, refit": x for k, x in (outcome.refit or {}).items()}
    return Entry(
        *head,
        metrics={**outcome.after, **refit},
        best_epoch=outcome.best_epoch,
        seconds=outcome.seconds["training"],
        images_per_second=outcome.images_per_second,
        test_set=outcome.test_set,
        environment=outcome.environment,
        untouched=outcome.baseline
        and {**outcome.baseline, "before": outcome.before},
    )


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Turns SIGTERM into `SystemExit` with status 75."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
