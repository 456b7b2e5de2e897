"""The `keras-dml` command, which finds its commands in `commands/`."""

import importlib
import logging
import pkgutil
import warnings
from typing import Any

import click

from keras_dml.cli import commands
from keras_dml.cli.common import PrintableFormatter, printable


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

            near = did_you_mean(cmd_name, known)
            ctx.fail(f"There is no command {cmd_name!r}.{near}")
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=Commands, context_settings={"show_default": True})
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
