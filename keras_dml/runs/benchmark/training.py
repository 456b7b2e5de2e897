"""Training of several recipes with several seeds, resumed where it ended."""

import time
from collections.abc import Callable
from functools import partial

from keras_dml.recipes import RecipeError
from keras_dml.runs.benchmark.comparison import Done, Line
from keras_dml.runs.benchmark.execution import execute
from keras_dml.runs.benchmark.journal import Entry, Journal
from keras_dml.runs.benchmark.plan import SEPARATOR, Plan, Run
from keras_dml.runs.benchmark.report import write_report
from keras_dml.runs.folder import (
    METRICS,
    RECIPE,
    changed_settings,
    load_outcome,
)
from keras_dml.utils.files import one_at_a_time
from keras_dml.utils.progress import epochs, time_left

Execute = Callable[[Run], str | None]


def benchmark(
    plan: Plan,
    command: str,
    *,
    retry: bool = False,
    echo: Callable[[str], None] = lambda line: None,
    execute: Execute = execute,
) -> tuple[list[Entry], list[Line]]:
    """Trains the remaining runs of a plan, and writes the tables.

    It can be killed at any moment: the next call with the same plan resumes the
    unfinished run from its last saved state. If a run fails, this is recorded,
    and the other runs continue.

    Args:
        plan: See `read_plan`.
        command: The command line, for the head of the report.
        retry: Whether runs that have failed are done again.
        echo: Receives a line when a run starts and when it ends.
        execute: Trains a run in its folder; returns why it failed.

    Returns:
        How each run of the plan ended, and what they say together.

    Raises:
        RecipeError: If a recipe was changed after a run of it had ended.
        BlockingIOError: If another benchmark is at work in the folder.
        KeyboardInterrupt: On Ctrl-C, after the tables of the runs that
            are done were written.
        SystemExit: On SIGTERM, likewise, after the run wrote its state.
    """
    with one_at_a_time(plan.output, "benchmark"):
        journal = Journal(plan.output)
        done = _done(plan, journal, retry)
        waiting = [run for run in plan.runs() if run.key not in done]
        start = time.monotonic()
        try:
            for number, run in enumerate(waiting, 1):
                name, seed = run.key
                passed = time.monotonic() - start
                echo(
                    f"[{number}/{len(waiting)}] {name}, seed {seed} "
                    f"({run.log}){time_left(passed, number - 1, len(waiting))}"
                )
                with epochs(
                    run.recipe.epochs,
                    partial(_epochs_ended, run),
                    f"{name}, seed {seed}",
                ):
                    error = execute(run)
                entry = _ended(run, error)
                journal.append(entry)
                done[run.key] = entry
                echo(f"    {_outcome(entry)}")
                is_last_of_seed = run.recipe.name == plan.recipes[-1].name
                if is_last_of_seed and number < len(waiting):
                    write_report(plan, done, command)
        finally:
            found = write_report(plan, done, command)
    return list(done.values()), found


def _epochs_ended(run: Run) -> int:
    """Lines of the log of its epochs, but for the names of its columns."""
    try:
        text = (run.folder / METRICS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return max(0, text.count("\n") - 1)


def _done(plan: Plan, journal: Journal, retry: bool) -> Done:
    """Entries of the runs of the plan that need not be done again."""
    entries = journal.entries()
    done = {}
    for run in plan.runs():
        entry = entries.get(run.key)
        if entry is None or (entry.error is not None and retry):
            continue
        if _same_recipe(run, entry):
            done[run.key] = entry
        elif entry.error is None:
            raise RecipeError(_changed(run))
    return done


def _same_recipe(run: Run, entry: Entry) -> bool:
    if entry.digest == run.digest:
        return True
    has_recipe = (run.folder / RECIPE).exists()
    return has_recipe and not changed_settings(run.folder, run.recipe)


def _changed(run: Run) -> str:
    return (
        f"The recipe {run.recipe.name!r} must be the one that was trained. Its "
        f"result for seed {run.recipe.seed} is in {run.folder}, but these "
        "settings have changed:\n  "
        + "\n  ".join(changed_settings(run.folder, run.recipe))
        + f"\nGive it another name (RECIPE{SEPARATOR}name=NAME), or use "
        "another --output."
    )


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
