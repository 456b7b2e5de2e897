"""`keras-dml evaluate`."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from keras_dml.cli.common import (
    begin_with,
    command_body,
    engine_option,
    example,
    model_option,
    print_table,
    refuse_run,
    say,
)
from keras_dml.cli.json_output import answer, json_option
from keras_dml.cli.measured_shards import (
    answer_results,
    embedding_options,
    is_embeddings,
    measure,
)

if TYPE_CHECKING:
    from keras_dml.embedding.engines import Engine
    from keras_dml.runs import Changes, Measurement

_SPLITS = "test", "validation", "train"
_OF_RUNS = "other", "split", "which", "by", "top", "file", "engine"


def _begin(run: str, **_: Any) -> None:
    """Refuses what is neither there nor a URL."""
    if "://" not in run and not Path(run).exists():
        refuse_run(run)


def _splits(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The splits of every data set: others are known once it is read."""
    found = (name for name in _SPLITS if name.startswith(incomplete))
    return [*map(CompletionItem, found)]


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml evaluate runs/first --intervals",
    )
)
@click.argument(
    "run", metavar="RUN_OR_EMBEDDINGS", type=click.Path(file_okay=False)
)
@click.argument("other", required=False, type=click.Path(file_okay=False))
@click.option(
    "--split",
    metavar="NAME",
    default="test",
    shell_complete=_splits,
    help="Images to measure on: test, validation, train, or one of several "
    "test sets, such as large of VehicleID.",
)
@engine_option
@model_option
@click.option(
    "--intervals", is_flag=True, help="For one run: add confidence intervals."
)
@click.option(
    "--units",
    type=click.Choice(["queries", "classes"]),
    default="queries",
    help="Units that the bootstrap draws for intervals and differences.",
)
@click.option(
    "--by",
    metavar="METRIC",
    help="For two runs: the metric by which queries improved or worsened. "
    "[default: the first run's monitor]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    help="For two runs: the number of these queries to list.",
)
@click.option(
    "--csv",
    "file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="For two runs: write the values of every query to a file.",
)
@embedding_options
@json_option
@click.pass_context
@begin_with(_begin)
@command_body
def evaluate(
    context: click.Context,
    run: str,
    other: str | None,
    split: str,
    engine: "Engine",
    which: str,
    intervals: bool,
    units: str,
    by: str | None,
    top: int,
    file: str | None,
    **options: Any,
) -> None:
    """Measure the model in the folder RUN again, with identical results.

    With OTHER, the folder of another run, compare the two query by query.
    EMBEDDINGS is a folder that `keras-dml embed` wrote, or its URL. They are
    measured using their labels, without a model, and without loading all of
    them into memory.
    """
    from keras_dml import runs
    from keras_dml.utils.files import write_atomically

    if is_embeddings(run):
        _refuse(context, _OF_RUNS, "a run")
        measure(run, units if intervals else None, **options)
        return
    _refuse(context, options, "a folder of embeddings")
    if other is None and (by or file):
        raise click.UsageError("--by and --csv compare two runs: give OTHER.")
    how = split, which, engine
    first = runs.remeasure(run, *how)
    if other is None:
        _show(run, first, split, which, units if intervals else None)
        return
    changes = runs.Changes(first, runs.remeasure(other, *how), units)
    monitor = first.recipe.evaluation.monitor
    known = list(changes.comparison)
    by = by or (monitor if monitor in known else known[0])
    if by not in known:
        raise click.UsageError(
            "--by must be a retrieval metric that both runs have. Received: "
            f"{by!r}. Available: {', '.join(known)}."
        )
    answer(
        {
            "first": {"run": run, **changes.first.to_dict()},
            "second": {"run": other, **changes.second.to_dict()},
            "split": split,
            "units": units,
            "differences": changes.comparison,
            "queries": {x: _counts(changes, x) for x in changes.comparison},
        }
    )
    say(f"first: {run}\nsecond: {other}")
    _show_differences(changes, f"{split}: {first.images!r}", units)
    for title, better in (("better", True), ("worse", False)):
        table = changes.table(by, better, top)
        if len(table) > 1:
            count = changes.counts(by)[0 if better else 1]
            print_table(
                table,
                f"{len(table) - 1} of {count} queries where the second is "
                f"{title} by {by}",
            )
    if file:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(changes.every_query())
        write_atomically(file, text.getvalue())
        say(f"Wrote {file}")


def _refuse(context: click.Context, names: Iterable[str], of: str) -> None:
    """Refuses options that are for something else."""
    from click.core import ParameterSource

    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in names and source != ParameterSource.DEFAULT:
            raise click.UsageError(
                f"{option.get_error_hint(context)} is for {of}. Received: "
                f"{context.params['run']}. Leave it out."
            )


def _show(
    run: str,
    measured: "Measurement",
    split: str,
    which: str,
    units: str | None,
) -> None:
    from keras_dml.runs.outcome import definitions, metric_rows

    answer_results(measured.results, units, run=run, split=split, model=which)
    print_table(
        metric_rows(measured.results, which, units),
        f"{measured.recipe.name}: {len(measured.images)} {split} images",
    )
    say("\n".join(definitions(measured.results)))


def _counts(changes: "Changes", metric: str) -> dict[str, int]:
    """Where the second is better, worse and equal."""
    names = ("better", "worse", "equal")
    return dict(zip(names, changes.counts(metric), strict=True))


def _show_differences(changes: "Changes", title: str, units: str) -> None:
    from keras_dml.runs.outcome import definitions, ends, p_value

    table = [["metric", "first", "second", "difference", "95 % interval", "p"]]
    for name, before in changes.first.items():
        if name in changes.second:
            after, found = changes.second[name], changes.comparison.get(name)
            row = [name, f"{before:.4f}", f"{after:.4f}"]
            row += [f"{after - before:+.4f}", ends(found, "+")]
            table.append([*row, p_value(found.p_value) if found else "–"])
    print_table(table, title)
    print_table(
        [
            ["metric", "better", "worse", "equal"],
            *([x, *map(str, changes.counts(x))] for x in changes.comparison),
        ],
        "Queries where the second is",
    )
    say(f"Paired bootstrap over {units}, 1000 samples; p is two-sided.")
    say("\n".join(definitions(row[0] for row in table[1:])))
