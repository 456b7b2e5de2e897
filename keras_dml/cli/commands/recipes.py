"""`keras-dml recipes`."""

from pathlib import Path

import click

from keras_dml.cli.common import command_body, print_table, say, setting_option


@click.command()
@click.argument("recipe", required=False, type=click.Path(dir_okay=False))
@setting_option
@click.option(
    "--folder",
    type=click.Path(file_okay=False),
    default="recipes",
    help="Where to look for recipes.",
)
@command_body
def recipes(recipe: str | None, settings: tuple[str, ...], folder: str) -> None:
    """List the recipes, or print RECIPE with everything filled in."""
    from keras_dml.recipes import dump, load

    if recipe:
        say(dump(load(recipe, settings)).rstrip("\n"))
        return
    # A leading underscore marks what only other recipes are based on.
    files = sorted(Path(folder).rglob("[!_]*.yaml"))
    if not files:
        raise click.ClickException(
            f"There are no recipes in {folder!r}. Use --folder."
        )
    rows = [[str(path), _first_comment(path)] for path in files]
    print_table([["recipe", "what it is"], *rows], "Recipes")


def _first_comment(path: Path) -> str:
    from keras_dml.recipes.reading import MOST_BYTES
    from keras_dml.utils.files import read_regular

    try:
        content = read_regular(path, MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    first = content.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
