"""`keras-dml evaluate`."""

import contextlib
import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli import common

if TYPE_CHECKING:
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.embedding.engines import Engine
    from keras_dml.evaluation import Results
    from keras_dml.runs import Changes

_SPLITS = "test", "validation", "train"
_WAYS = "better", "worse", "equal"
_OF_RUNS = "other", "split", "which", "by", "top", "file", "engine"


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
    "keras-dml evaluate runs/first --intervals",
)
@click.argument(
    "run", metavar="RUN_OR_EMBEDDINGS", type=click.Path(file_okay=False)
)
@click.argument("other", required=False, type=click.Path(file_okay=False))
@click.option(
    "--split",
    metavar="NAME",
    default="test",
    # Every data set has these; others are known once it is read.
    shell_complete=lambda context, parameter, start: [
        name for name in _SPLITS if name.startswith(start)
    ],
    help="Images to measure on: test, validation, train, or one of several "
    "test sets, such as large of VehicleID.",
)
@common.engine_option
@common.model_option
@common.trust_option
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
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="For embeddings: a metric, such as recall@10; may be repeated. "
    "[default: recall@1, 2, 4, 8, r_precision and map@r]",
)
@click.option(
    "--distance",
    type=click.Choice(["cosine", "euclidean", "dot"]),
    help="For embeddings: the distance used for searching. [default: cosine]",
)
@click.option(
    "--gallery",
    metavar="FOLDER",
    help="For embeddings: a separate gallery to search in.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    help="For embeddings: the number of random queries, instead of all.",
)
@click.option(
    "--cluster-sample",
    type=click.IntRange(min=1),
    help="For embeddings: the number of random rows from which K-means "
    "finds its centroids, instead of all.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="For embeddings: the memory for searching. [default: 512MB]",
)
@click.pass_context
@common.command_body
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
    """Evaluate the model in the folder RUN again, with identical results.

    With OTHER, the folder of another run, compare the two query by query.
    EMBEDDINGS is a folder that `keras-dml embed` wrote, or its URL. They are
    measured using their labels, without a model, and without loading all of
    them into memory.
    """
    from keras_dml import runs
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.embedding.shards import MANIFEST, is_url
    from keras_dml.runs.folder import load_outcome
    from keras_dml.utils.files import write_atomically

    interval_units = units if intervals else None
    if is_url(run) or (Path(run) / MANIFEST).exists():
        _reject(context, _OF_RUNS, "a run")
        shards = EmbeddingShards(run)
        results = _evaluate_shards(shards, **options)
        *_, note = str(results).splitlines()
        _show(results, interval_units, "value", f"{run}: {shards!r}", note,
              embeddings=run)  # fmt: skip
        return
    _reject(context, options, "a folder of embeddings")
    if other is None and (by or file):
        raise click.UsageError("--by and --csv compare two runs: give OTHER.")
    how = split, which, engine
    first = runs.remeasure(run, *how)
    if other is None:
        title = f"{first.recipe.name}: {len(first.images)} {split} images"
        _show(first.results, interval_units, which, title, run=run, split=split,
              model=which)  # fmt: skip
        if split == "test":
            # A stopped or damaged run may still have a whole model.
            with contextlib.suppress(FileNotFoundError, ValueError):
                for line in load_outcome(run).baseline_lines():
                    common.say(line)
        common.suggest("keras-dml", "export", run)
        return
    changes = runs.Changes(first, runs.remeasure(other, *how), units)
    monitor = first.recipe.evaluation.monitor
    names = list(changes.comparison)
    by = by or (monitor if monitor in names else names[0])
    if by not in names:
        raise click.UsageError(
            "--by must be a retrieval metric that both runs have. Received: "
            f"{by!r}. Available: {', '.join(names)}."
        )
    common.answer(
        {
            "first": {"run": run, **changes.first.to_dict()},
            "second": {"run": other, **changes.second.to_dict()},
            "split": split,
            "units": units,
            "differences": changes.comparison,
            "queries": {
                x: dict(zip(_WAYS, changes.counts(x), strict=True))
                for x in changes.comparison
            },
        }
    )
    common.say(f"first: {run}\nsecond: {other}")
    _show_differences(changes, f"{split}: {first.images!r}", units)
    for way, count in zip(_WAYS[:2], changes.counts(by), strict=False):
        table = changes.table(by, way == "better", top)
        if len(table) > 1:
            common.print_table(
                table,
                f"{len(table) - 1} of {count} queries where the second is "
                f"{way} by {by}",
            )
    if file:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(changes.every_query())
        write_atomically(file, text.getvalue())
        common.say(f"Wrote {file}")


def _reject(context: click.Context, names: Iterable[str], of: str) -> None:
    """Raises a usage error for options that are for something else."""
    from click.core import ParameterSource

    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in names and source != ParameterSource.DEFAULT:
            raise click.UsageError(
                f"{option.get_error_hint(context)} is for {of}. Received: "
                f"{context.params['run']}. Leave it out."
            )


def _evaluate_shards(
    shards: "EmbeddingShards",
    gallery: str | None,
    queries: int | None,
    **options: Any,
) -> "Results":
    """Evaluates embeddings; options that are None take their defaults."""
    import numpy as np

    from keras_dml.embedding import EmbeddingShards
    from keras_dml.evaluation import Protocol, evaluate_embeddings

    if gallery and queries:
        raise click.UsageError(
            "--queries draws queries from embeddings without a gallery. Leave "
            "out --gallery."
        )
    options = {name: x for name, x in options.items() if x}
    if gallery:
        options["gallery"] = EmbeddingShards(gallery)
    if queries:
        count = len(shards)
        if queries > count:
            raise click.UsageError(
                f"--queries must be at most the {count} embeddings. "
                f"Received: {queries}."
            )
        rows = np.random.default_rng(0).choice(count, queries, replace=False)
        options["protocol"] = Protocol(queries=np.sort(rows))
    return evaluate_embeddings(shards, **options)


def _show(
    results: "Results",
    units: str | None,
    heading: str,
    title: str,
    note: str = "",
    **about: Any,
) -> None:
    """Prints metrics, with intervals over `units` if given."""
    from keras_dml.evaluation import bootstrap
    from keras_dml.runs.outcome import definitions, metric_rows

    intervals = bootstrap(results, units=units) if units else None
    common.answer(
        {**about, **results.to_dict(), "units": units, "intervals": intervals}
    )
    common.print_table(metric_rows(results, heading, units), title)
    if note:
        common.say(note)
    common.say("\n".join(definitions(results)))


def _show_differences(changes: "Changes", title: str, units: str) -> None:
    from keras_dml.runs.outcome import definitions, format_interval, p_value

    table = [["metric", "first", "second", "difference", "95 % interval", "p"]]
    for name, before in changes.first.items():
        if name in changes.second:
            after, gain = changes.second[name], changes.comparison.get(name)
            row = [name, f"{before:.4f}", f"{after:.4f}"]
            row += [f"{after - before:+.4f}", format_interval(gain, "+")]
            table.append([*row, p_value(gain.p_value) if gain else "–"])
    common.print_table(table, title)
    common.print_table(
        [
            ["metric", *_WAYS],
            *([x, *map(str, changes.counts(x))] for x in changes.comparison),
        ],
        "Queries where the second is",
    )
    common.say(f"Paired bootstrap over {units}, 1000 samples; p is two-sided.")
    common.say("\n".join(definitions(row[0] for row in table[1:])))
