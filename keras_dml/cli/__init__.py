"""The `keras-dml` command, which finds its commands in `commands/`.

Open first: `commands/train`, one command as all are. `common` has the options
that several share, prints results and turns errors into messages; `sources`
reads the models and images that a command names. A command imports what it
needs when it runs.

Imports: everything.
"""

import importlib
import logging
import pkgutil
import warnings
from typing import Any

import click

from keras_dml.cli import commands
from keras_dml.cli.common import PrintableFormatter, printable, user_errors

_ALSO_IN = {"figures": "report", "search": "index"}
"""Commands in a module of another name."""


class Commands(click.Group):
    """A group whose commands are the modules of a package.

    The module `commands/train.py` has the command `train`, with the name of
    the module. None of them imports TensorFlow before it runs, so --help
    answers at once.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        modules = pkgutil.iter_modules(commands.__path__)
        return sorted([*(x.name for x in modules), *_ALSO_IN])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        names = self.list_commands(ctx)
        if cmd_name not in names:
            from keras_dml.utils.arguments import REMOVAL_HINTS, did_you_mean

            near = did_you_mean(cmd_name, [*names, "--version", "--help"])
            removal = REMOVAL_HINTS.get(cmd_name)
            hint = near if removal is None else f" {removal}"
            ctx.fail(f"There is no command {cmd_name!r}.{hint}")
        name = _ALSO_IN.get(cmd_name, cmd_name)
        module = importlib.import_module(f"{commands.__name__}.{name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        words = list(ctx.args)
        try:
            with user_errors():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            _explain(error, error.ctx.command if error.ctx else self, words)
            raise
        except click.MissingParameter as error:
            if error.param is not None and "recipe" in (error.param.name or ""):
                error.message = (  # type: ignore[misc]
                    "Use `keras-dml recipes` to list those of the package."
                )
            raise


def _explain(
    error: click.NoSuchOption, command: click.Command, words: list[str]
) -> None:
    """Explains a removed option, or suggests a setting of a recipe."""
    from keras_dml.utils.arguments import REMOVAL_HINTS

    option = error.option_name
    if hint := REMOVAL_HINTS.get(f"{command.name} {option}"):
        error.message += f" {hint}"  # type: ignore[misc]
        error.possibilities = None  # type: ignore[misc]
    elif any(x.name == "settings" for x in command.params):
        from keras_dml.recipes.inheritance import nearest_key

        name = option.lstrip("-").replace("-", "_")
        key = nearest_key(name, cutoff=1.0 if error.possibilities else 0.8)
        if key is not None:
            parts = [part for word in words for part in word.split("=", 1)]
            value = parts[parts.index(option) + 1 :][:1] or ["VALUE"]
            error.message += (  # type: ignore[misc]
                " Settings of a recipe are given by --set: --set "
                f"{key}={value[0]}."
            )


@click.group(
    cls=Commands,
    context_settings={
        "show_default": True,
        "help_option_names": ["-h", "--help"],
    },
)
@click.version_option(package_name="keras-dml")
def main() -> None:
    """Deep metric learning for Keras: train, evaluate, export.

    Set KERAS_DML_TRACEBACK=1 to see where an error comes from.
    """
    logging.basicConfig()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    # As log lines are, without the code that warnings come from.
    warnings.formatwarning = lambda message, *_, **__: (
        f"WARNING {printable(str(message))}\n"
    )
    logging.getLogger("keras_dml").setLevel(logging.INFO)
