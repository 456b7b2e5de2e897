"""`keras-dml embed`."""

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from keras_dml.cli import common

REPEAT_SECONDS = 5.0
"""Time after which SIGTERM interrupts again, should it have been lost."""


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
    "keras-dml embed runs/first test gallery",
)
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(exists=True))
@click.argument("source")
@click.argument("out", type=common.OutputFolder())
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    help="Type of the stored numbers.",
)
@click.option(
    "--rows-per-shard",
    type=click.IntRange(min=1),
    default=8192,
    help="Images per shard; a killed process loses one shard at most.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=256,
    help="Number of images embedded at a time.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace embeddings of other images or another model.",
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Embed with actors of a Ray cluster: the one at ADDRESS or on this "
    "machine; if there is none, Ray is started.",
)
@common.engine_option
@common.model_option
@common.trust_option
@common.command_body
def embed(
    model: str,
    source: str,
    out: str,
    which: str,
    ray: str | None,
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

    network, recipe = read_model(model, which)
    images, columns = read_listed(source, recipe)
    with _ending_well():
        shards = embed_shards(
            network,
            images,
            out,
            columns=columns,
            ray=True if ray == "auto" else ray,
            **options,
        )
    names = ("dim", "dtype", "num_shards")
    common.answer(
        {
            "embeddings": out,
            "images": len(shards),
            **{name: getattr(shards, name) for name in names},
        }
    )
    rows = [
        ["images", f"{len(shards):,}"],
        ["dimensions", f"{shards.dim} ({shards.dtype})"],
        ["shards", str(shards.num_shards)],
    ]
    common.print_table([["", ""], *rows], f"Embeddings in {out}")
    if images.labels is not None:
        common.suggest("keras-dml", "evaluate", out)


@contextmanager
def _ending_well() -> Iterator[None]:
    """Prints how to continue after Ctrl-C or SIGTERM."""
    timers: list[threading.Timer] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        # An exception in a destructor is lost, so this one comes again.
        again = threading.Timer(
            REPEAT_SECONDS, _thread.interrupt_main, [number]
        )
        again.daemon = True
        again.start()
        timers.append(again)
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        common.say(
            "Interrupted. Finished shards are kept. Run the same command to "
            "continue.",
            err=True,
        )
        sys.exit(75 if signal.SIGTERM in error.args else common.INTERRUPTED)
    finally:
        for timer in timers:
            timer.cancel()
        signal.signal(signal.SIGTERM, before)
