"""`keras-dml evaluate` of a folder of embeddings, without a model."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.common import print_table, say
from keras_dml.cli.json_output import answer

if TYPE_CHECKING:
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.evaluation import Protocol, Results

_OPTIONS = (
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        help="For embeddings: a metric, such as recall@10; may be repeated. "
        "[default: recall@1, 2, 4, 8, r_precision and map@r]",
    ),
    click.option(
        "--distance",
        type=click.Choice(["cosine", "euclidean", "dot"]),
        help="For embeddings: the distance used for searching. [default: "
        "cosine]",
    ),
    click.option(
        "--gallery",
        metavar="FOLDER",
        help="For embeddings: a separate gallery to search in.",
    ),
    click.option(
        "--queries",
        type=click.IntRange(min=1),
        help="For embeddings: the number of random queries, instead of all.",
    ),
    click.option(
        "--cluster-sample",
        type=click.IntRange(min=1),
        help="For embeddings: the number of random rows from which K-means "
        "finds its centroids, instead of all.",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        help="For embeddings: the memory for searching. [default: 512MB]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="For embeddings: the number of processes that search. [default: "
        "1; with --ray, one per CPU]",
    ),
    click.option(
        "--ray",
        is_flag=False,
        flag_value="auto",
        metavar="[ADDRESS]",
        help="For embeddings: search with actors of a Ray cluster, at ADDRESS "
        "or a running one; if there is none, Ray starts on this machine.",
    ),
)


def embedding_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command with what embeddings are measured by."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def is_embeddings(folder: str) -> bool:
    """Whether a folder is one of embeddings, or a URL, which runs are not."""
    from keras_dml.embedding.manifest import MANIFEST
    from keras_dml.embedding.storage import is_url

    return is_url(folder) or (Path(folder) / MANIFEST).exists()


def measure(
    folder: str,
    units: str | None,
    gallery: str | None,
    queries: int | None,
    **options: Any,
) -> None:
    """Measures embeddings and prints it.

    Args:
        folder: Of the embeddings.
        units: What the bootstrap of intervals draws; None for no intervals.
        gallery: The folder of others to search among, or None.
        queries: How many random embeddings query; None for all.
        **options: Those of `evaluate_embeddings`; None for its default.
    """
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.evaluation import evaluate_embeddings
    from keras_dml.runs.outcome import definitions, metric_rows

    if gallery and queries:
        raise click.UsageError(
            "--queries draws queries from embeddings without a gallery. Leave "
            "out --gallery."
        )
    shards = EmbeddingShards(folder)
    try:
        results = evaluate_embeddings(
            shards,
            gallery=EmbeddingShards(gallery) if gallery else None,
            protocol=_some(shards, queries) if queries else None,
            **{name: x for name, x in options.items() if x},
        )
    except RuntimeError as error:  # Of workers, which die again and again.
        raise ChildProcessError(str(error)) from error
    answer_results(results, units, embeddings=folder)
    print_table(metric_rows(results, "value", units), f"{folder}: {shards!r}")
    say(str(results).splitlines()[-1])
    say("\n".join(definitions(results)))


def answer_results(results: "Results", units: str | None, **about: Any) -> None:
    """The document of --json: metrics, with intervals over `units` if given."""
    from keras_dml.evaluation import bootstrap

    found = bootstrap(results, units=units) if units else None
    answer({**about, **results.to_dict(), "units": units, "intervals": found})


def _some(shards: "EmbeddingShards", queries: int) -> "Protocol":
    """Some random rows query all others."""
    import numpy as np

    from keras_dml.evaluation import Protocol

    if queries > len(shards):
        raise click.UsageError(
            f"--queries must be at most the {len(shards)} embeddings. "
            f"Received: {queries}."
        )
    rows = np.random.default_rng(0).choice(len(shards), queries, replace=False)
    return Protocol(queries=np.sort(rows))
