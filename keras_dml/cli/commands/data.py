"""`keras-dml data`: check."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keras_dml.cli import common

if TYPE_CHECKING:
    from keras_dml.data import Findings


_GROUPS = 50
"""Number of groups of copies that are shown; --json has all."""


@click.group(
    epilog=common.example(
        "keras-dml data check photographs",
        "keras-dml data check quickstart",
    )
)
def data() -> None:
    """Show the contents and splits of a data set."""


@data.command()
@click.argument("path", type=click.Path())
@common.setting_option
@click.option(
    "--preview",
    type=click.Path(dir_okay=False),
    metavar="FILE.png",
    help="Write a sheet of training images, with one class per row.",
)
@common.command_body
def check(path: str, settings: tuple[str, ...], preview: str | None) -> None:
    """Report which data set is at PATH, and what is missing.

    PATH is a folder or a table; or a recipe, whose own splits are checked.
    Copies are listed in groups: exact ones have the same pixels, near ones look
    the same.
    """
    from keras_dml.data import preview as draw
    from keras_dml.utils.files import atomic_file

    findings, training = _findings(path, settings)
    common.say(f"{path} is {findings.kind}: keras_dml.data.{findings.loader}")
    for problem in findings.problems:
        common.say(f"! {problem}")
    about = {
        "kind": findings.kind,
        "loader": findings.loader,
        "problems": findings.problems,
        "copies": [
            {"kind": x.kind, "images": [y._asdict() for y in x.images]}
            for x in findings.copies
        ],
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
    if findings.copies:
        copies = [
            [f"{number} {group.kind}", *image]
            for number, group in enumerate(findings.copies[:_GROUPS], 1)
            for image in group.images
        ]
        title = f"Copies, {_GROUPS} of {len(findings.copies)} groups"
        if len(findings.copies) <= _GROUPS:
            title = "Copies"
        header = ["group", "split", "class", "image"]
        common.print_table([header, *copies], title)
    if preview:
        with atomic_file(preview) as partial:
            draw(splits.train).save(partial)
        common.say(f"Wrote {preview}")
    if training:
        common.suggest("keras-dml", "train", *training)


def _findings(
    path: str, settings: tuple[str, ...]
) -> tuple["Findings", list[str]]:
    """Findings, and the arguments of `train` for this data, if it is known."""
    from keras_dml import recipes
    from keras_dml.data import DATASETS
    from keras_dml.data import check as look_at

    is_recipe = Path(path).suffix.lower() in (".yaml", ".yml")
    is_name = not Path(path).exists() and path in recipes.names()
    if not (is_recipe or is_name):
        if settings:
            raise click.UsageError("--set is for recipes. Leave it out.")
        findings = look_at(path)
        is_folder = findings.loader == "image_folder_splits"
        words = ["photographs", "--set", f"data.path={path}"]
        return findings, words if is_folder else []
    recipe = recipes.load(path, settings)
    recipe.check_files()
    findings = look_at(lambda: recipe.data.load(recipe.seed, recipe.train_on))
    findings = replace(
        findings,
        kind=f"a recipe for {recipe.source}",
        loader=DATASETS[recipe.data.name].value.__name__,
    )
    return findings, [path, *(x for y in settings for x in ("--set", y))]
