"""`keras-dml data`: glyphs, folder, check."""

import sys
from typing import TYPE_CHECKING, Any, Literal

import click

from keras_dml.cli.common import command_body, example, print_table, say
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keras_dml.data import DataSplits


@click.group(
    epilog=example(
        "keras-dml data glyphs --preview sheet.png",
        "keras-dml data check photographs",
    )
)
def data() -> None:
    """Show the contents and splits of a data set."""


preview_option = click.option(
    "--preview",
    type=click.Path(dir_okay=False),
    metavar="FILE.png",
    help="Write a sheet of training images, with one class per row.",
)


@data.command()
@preview_option
@json_option
@command_body
def glyphs(preview: str | None) -> None:
    """The built-in data set of typeface drawings."""
    from keras_dml.data import glyphs as load_glyphs

    _show(load_glyphs(), preview)


@data.command()
@click.argument("path", type=click.Path(file_okay=False))
@click.option(
    "--unreadable",
    type=click.Choice(["skip", "raise"]),
    default="skip",
    help="How to handle files that are not images.",
)
@preview_option
@json_option
@command_body
def folder(
    path: str, unreadable: Literal["skip", "raise"], preview: str | None
) -> None:
    """Images in PATH/class/image.jpg."""
    from keras_dml.data import image_folder_splits

    _show(image_folder_splits(path, unreadable=unreadable), preview)


@data.command()
@click.argument("path", type=click.Path())
@preview_option
@json_option
@command_body
def check(path: str, preview: str | None) -> None:
    """Report which data set is at PATH, and what is missing."""
    from keras_dml.data import check as look_at

    found = look_at(path)
    say(f"{path} is {found.kind}: keras_dml.data.{found.loader}")
    for problem in found.problems:
        say(f"! {problem}")
    about = {
        "kind": found.kind,
        "loader": found.loader,
        "problems": found.problems,
    }
    if found.splits is None:
        answer(about)
        sys.exit(1)
    _show(found.splits, preview, about)


def _show(
    splits: "DataSplits",
    preview: str | None,
    about: "Mapping[str, Any] | None" = None,
) -> None:
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
    answer({"name": splits.name, **(about or {}), "splits": counts})
    rows = [[name, *map(str, x.values())] for name, x in counts.items()]
    print_table([["classes for", "classes", "images"], *rows], splits.name)
    if preview:
        from keras_dml.data import preview as draw
        from keras_dml.utils.files import atomic_file

        with atomic_file(preview) as partial:
            draw(splits.train).save(partial)
        say(f"Wrote {preview}")
