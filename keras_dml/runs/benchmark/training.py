"""Training of several recipes with several seeds, resumed where it ended."""

import time
from collections.abc import Callable, Iterator

from keras_dml.embedding.local import LocalWorkers
from keras_dml.embedding.work import Pool
from keras_dml.recipes import RecipeError
from keras_dml.runs.benchmark.comparison import Done, Line
from keras_dml.runs.benchmark.execution import (
    Building,
    Training,
    sigterm_passed_on,
)
from keras_dml.runs.benchmark.journal import Entry, Journal
from keras_dml.runs.benchmark.plan import SEPARATOR, Plan, Run
from keras_dml.runs.benchmark.report import write_report
from keras_dml.runs.folder import RECIPE, changed_settings, load_outcome
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
        journal = Journal(plan.output)
        done = _done(plan, journal, retry)
        remaining = [run for run in plan.runs() if run.key not in done]
        try:
            with sigterm_passed_on():
                _try_out(remaining, pool, echo)
                for entry in _executed(remaining, pool, echo):
                    journal.append(entry)
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
