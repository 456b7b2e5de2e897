"""The `keras-dml` command, which finds its commands in `commands/`.

Open first: `commands/train`, one command as all are. `common` has the options
that several share and turns errors into messages; `sources` reads what a
command is pointed at. A command imports what it needs when it runs.

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
from keras_dml.utils.removed import REMOVED


class Commands(click.Group):
    """A group whose commands are the modules of a package.

    The module `commands/train.py` has the command `train`, with the name of
    the module. None of them imports TensorFlow before it runs, so --help
    answers at once.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(x.name for x in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        known = self.list_commands(ctx)
        if cmd_name not in known:
            from keras_dml.utils.arguments import did_you_mean

            near = did_you_mean(cmd_name, [*known, "--version", "--help"])
            removal = REMOVED.get(cmd_name)
            hint = near if removal is None else f" {removal}"
            ctx.fail(f"There is no command {cmd_name!r}.{hint}")
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        given = list(ctx.args)
        try:
            with user_errors():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            command = error.ctx.command if error.ctx else self
            hint = REMOVED.get(f"{command.name} {error.option_name}")
            if hint:
                error.message += f" {hint}"  # type: ignore[misc]
                error.possibilities = None  # type: ignore[misc]
            elif any(x.name == "settings" for x in command.params):
                hint = _as_setting(error.option_name, given)
                error.message += hint  # type: ignore[misc]
            raise
        except click.MissingParameter as error:
            if error.param is not None and "recipe" in (error.param.name or ""):
                error.message = (  # type: ignore[misc]
                    "Use `keras-dml recipes` to list those of the package."
                )
            raise


def _as_setting(option: str, given: list[str]) -> str:
    """What an option that does not exist is as a setting of a recipe."""
    from keras_dml.recipes.inheritance import with_key

    key = with_key(option.lstrip("-").replace("-", "_"))
    if key is None:
        return ""
    words = [part for word in given for part in word.split("=", 1)]
    value = words[words.index(option) + 1 :][:1] or ["VALUE"]
    return f" Settings of a recipe are given by --set: --set {key}={value[0]}."


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
    warnings.formatwarning = _said
    logging.getLogger("keras_dml").setLevel(logging.INFO)


def _said(message: Warning | str, *_: Any, **__: Any) -> str:
    """A warning as log lines are, without the code that it comes from."""
    return f"WARNING {printable(str(message))}\n"
