"""`keras-dml recipes`: list, show, copy."""

from difflib import get_close_matches
from pathlib import Path

import click

from keras_dml.cli import common


class _Recipes(click.Group):
    """A group that suggests the nearest of its commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name not in self.commands:
            near = get_close_matches(name, self.commands, n=1)
            words = [near[0], *rest] if near else ["show", *args]
            ctx.fail(
                f"There is no command {name!r} of recipes. Did you mean "
                f"`keras-dml recipes {' '.join(words)}`?"
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Recipes,
    invoke_without_command=True,
    epilog=common.example(
        "keras-dml recipes",
        "keras-dml recipes show glyphs/diva --set epochs=2",
        "keras-dml recipes copy glyphs/diva my_recipes",
    ),
)
@click.pass_context
def recipes(context: click.Context) -> None:
    """List, show and copy recipes; without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, folder=None, as_json=False)


@recipes.command("list")
@click.option(
    "--folder",
    type=click.Path(file_okay=False),
    help="List the recipes in this folder instead.",
)
@common.json_option
def list_(folder: str | None) -> None:
    """List the recipes that come with the package."""
    from keras_dml.recipes import included

    if folder is None:
        paths = included.paths()
        by_name = {name: paths[name] for name in included.names()}
    else:
        files = sorted(Path(folder).rglob("[!_]*.yaml"))
        by_name = {str(path): path for path in files}
    if not by_name:
        raise click.ClickException(
            f"There are no recipes in {folder or included.folder()}. Use "
            "--folder to list those of another folder."
        )
    rows = [[name, _first_comment(path)] for name, path in by_name.items()]
    common.answer({"recipes": dict(rows)})
    common.print_table([["recipe", "description"], *rows], "Recipes")


@recipes.command()
@common.recipe_argument
@common.setting_option
@common.trust_option
@common.command_body
def show(recipe: str, settings: tuple[str, ...]) -> None:
    """Print RECIPE with everything filled in.

    RECIPE is the path of a file or, where there is none, a name from the list,
    here and in every other command. Training imports modules that it names;
    this does so only with --trust.
    """
    from keras_dml.recipes import dump, load
    from keras_dml.utils.trust import reading

    with reading(recipe):
        complete = load(recipe, settings)
    common.answer(complete.model_dump(mode="json"))
    common.say(dump(complete).rstrip("\n"))


@recipes.command()
@click.argument("name", shell_complete=common.recipe_names)
@click.argument(
    "destination", default="recipes", type=click.Path(file_okay=False)
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@common.json_option
def copy(name: str, destination: str, force: bool) -> None:
    """Copy the recipe NAME, and those it is based on, to a folder.

    DESTINATION is `recipes` by default. The copies keep their relative places,
    so that each recipe finds its bases. Without --force, nothing is written if
    a different file is in the way.
    """
    from keras_dml import recipes

    files = recipes.copy(name, destination, overwrite=force)
    common.answer({"files": files})
    for path in files:
        common.say(f"Wrote {path}")
    common.suggest("keras-dml", "train", files[0])


def _first_comment(path: Path) -> str:
    from keras_dml.recipes.inheritance import MAX_BYTES
    from keras_dml.utils.files import read_regular

    try:
        content = read_regular(path, MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    first = content.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
