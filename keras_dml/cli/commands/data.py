"""`keras-dml data`: check."""

import sys

import click

from keras_dml.cli import common


@click.group(epilog=common.example("keras-dml data check photographs"))
def data() -> None:
    """Show the contents and splits of a data set."""


@data.command()
@click.argument("path", type=click.Path())
@click.option(
    "--preview",
    type=click.Path(dir_okay=False),
    metavar="FILE.png",
    help="Write a sheet of training images, with one class per row.",
)
@common.command_body
def check(path: str, preview: str | None) -> None:
    """Report which data set is at PATH, and what is missing."""
    from keras_dml.data import check as look_at
    from keras_dml.data import preview as draw
    from keras_dml.utils.files import atomic_file

    findings = look_at(path)
    common.say(f"{path} is {findings.kind}: keras_dml.data.{findings.loader}")
    for problem in findings.problems:
        common.say(f"! {problem}")
    about = {
        "kind": findings.kind,
        "loader": findings.loader,
        "problems": findings.problems,
    }
    splits = findings.splits
    if splits is None:
        common.answer(about)
        sys.exit(1)
    sets = {
        "train": splits.train,
        "validation": splits.validation,
        "test": splits.test,
        **{f"test, {name}": x for name, x in splits.tests.items()},
    }
    counts = {
        name: {"classes": images.num_classes, "images": len(images)}
        for name, images in sets.items()
    }
    common.answer({"name": splits.name, **about, "splits": counts})
    rows = [[name, *map(str, x.values())] for name, x in counts.items()]
    common.print_table(
        [["classes for", "classes", "images"], *rows], splits.name
    )
    if preview:
        with atomic_file(preview) as partial:
            draw(splits.train).save(partial)
        common.say(f"Wrote {preview}")
