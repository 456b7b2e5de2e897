"""`keras-dml embed`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.common import (
    INTERRUPTED,
    OutputFolder,
    command_body,
    engine_option,
    example,
    model_option,
    precision_option,
    print_table,
    say,
)
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from keras_dml.embedding import EmbeddingShards

_NAMED = 3


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml embed runs/first test gallery --workers 2",
    )
)
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(exists=True))
@click.argument("source")
@click.argument("out", type=OutputFolder())
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Number of processes that embed, each with the model. [default: 1; "
    "with --ray, the number of GPUs or CPUs of the cluster]",
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Embed with actors of a Ray cluster: the one at ADDRESS or on this "
    "machine; if there is none, Ray is started.",
)
@precision_option("--dtype", "Type of the stored numbers.")
@click.option(
    "--rows-per-shard",
    type=click.IntRange(min=1),
    default=8192,
    help="Images per shard, which is the most that a killed worker loses.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=256,
    help="Number of images embedded at a time.",
)
@click.option(
    "--max-bad",
    metavar="COUNT|SHARE",
    help="Unreadable images to tolerate: a number such as 100, or a share "
    "such as 0.01. [default: 0.01, but at least 10]",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace embeddings of other images or another model.",
)
@engine_option
@model_option
@json_option
@command_body
def embed(
    model: str,
    source: str,
    out: str,
    which: str,
    max_bad: str | None,
    **options: Any,
) -> None:
    """Embed the images of SOURCE into Parquet files in the folder OUT.

    RUN_OR_MODEL is the folder of a run or a .keras file. SOURCE is a folder of
    images, with or without a folder per class; a .csv, .tsv or .parquet table
    with a column of paths or URLs; a .txt list of them; tfds:NAME:SPLIT; or a
    split of the run's data: train, validation or test. OUT is a folder or a
    URL, such as s3://bucket/gallery. The same command continues an interrupted
    run.
    """
    from keras_dml.cli.sources import read_listed, read_model
    from keras_dml.embedding import embed_shards

    limit = _limit(max_bad)
    network, recipe = read_model(model, which)
    listed = read_listed(source, recipe)
    with _ending_well():
        shards = embed_shards(
            network,
            listed.examples,
            out,
            columns=listed.columns,
            max_bad=limit,
            **options,
        )
    names = ("bad", "dim", "dtype", "num_shards", "images_per_second")
    answer(
        {
            "embeddings": out,
            "images": len(shards),
            **{name: getattr(shards, name) for name in names},
        }
    )
    print_table([["", ""], *_rows(shards)], f"Embeddings in {out}")
    for bad in shards.bad[:_NAMED]:
        say(f"Left out: row {bad.row}. {bad.error}", err=True)
    if len(shards.bad) > _NAMED:
        say(
            f"and {len(shards.bad) - _NAMED} more: see _manifest.json", err=True
        )


def _limit(text: str | None) -> int | float | None:
    """A number of images, or a share of them."""
    if text is None:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a number, such as 100, nor a share, such as "
            "0.01.",
            param_hint="--max-bad",
        ) from None


@contextmanager
def _ending_well() -> Iterator[None]:
    """After Ctrl-C and SIGTERM, ends the workers and says how to continue."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except RuntimeError as error:  # Of workers, which die again and again.
        raise ChildProcessError(
            f"{error} Finished shards are kept. Run the same command to "
            "continue."
        ) from error
    except KeyboardInterrupt as error:
        say(
            "Interrupted. Finished shards are kept. Run the same command to "
            "continue.",
            err=True,
        )
        sys.exit(75 if signal.SIGTERM in error.args else INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _rows(shards: "EmbeddingShards") -> list[list[str]]:
    return [
        ["images", f"{len(shards):,}"],
        ["bad", f"{len(shards.bad):,}"],
        ["dimensions", f"{shards.dim} ({shards.dtype})"],
        ["shards", str(shards.num_shards)],
        ["images per second", f"{shards.images_per_second:,.0f}"],
    ]
