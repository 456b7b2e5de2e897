"""Options, errors and tables that all commands share."""

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.quiet import import_package

if TYPE_CHECKING:
    from keras_dml.runs.outcome import Table

# What users can fix; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, ImportError)


def command_body(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates what a command does.

    The package is imported first: TensorFlow only when a command runs. An
    error that a user can fix is printed as one message, without a traceback.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import_package()
        try:
            return command(*args, **kwargs)
        except USER_ERRORS as error:
            if os.environ.get("KERAS_DML_TRACEBACK"):
                raise
            raise click.ClickException(str(error)) from error

    return wrapped


setting_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.KEY=VALUE",
    help="Change a setting of the recipe; may be repeated.",
)

model_option = click.option(
    "--model",
    "which",
    type=click.Choice(["best", "last"]),
    default="best",
    show_default=True,
    help="Which model of the run.",
)


def print_table(table: "Table", title: str) -> None:
    """Prints a header and rows under a title."""
    from rich.console import Console
    from rich.table import Table as RichTable

    header, *rows = table
    drawn = RichTable()
    for name in header:
        drawn.add_column(name, overflow="fold")  # Digits are never cut off.
    for row in rows:
        drawn.add_row(*row)
    click.echo(title)
    Console().print(drawn)
