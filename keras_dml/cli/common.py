"""What all commands share: how they start and fail, options, tables."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from keras_dml.runs.outcome import Table

# What users can fix; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, ImportError)

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
    help="Which model of the run.",
)


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


def import_package() -> None:
    """Imports all parts of the package, whose classes saved models name.

    TensorFlow logs warnings and errors only, unless TF_CPP_MIN_LOG_LEVEL
    is set.
    """
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if level in ("2", "3") and "tensorflow" not in sys.modules:
        with _silent_unless_it_fails():
            import tensorflow as tf

            if not os.path.exists("/dev/nvidiactl"):
                # It would note later, as an error, that there is no GPU.
                tf.config.list_physical_devices("GPU")
    import keras_dml

    keras_dml.import_parts()


@contextmanager
def _silent_unless_it_fails() -> Iterator[None]:
    """Keeps back what is written to stderr, and prints it after an error.

    At every log level, TensorFlow notes there that it uses oneDNN, from C++
    and before its log can be set.
    """
    try:
        kept = os.dup(2)
    except OSError:  # There is no stderr.
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(kept, written.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def print_table(table: "Table", title: str) -> None:
    """Prints a header and rows under a title."""
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as RichTable

    header, *rows = table
    # Digits are never cut off.
    drawn = RichTable(*(Column(name, overflow="fold") for name in header))
    for row in rows:
        drawn.add_row(*row)
    click.echo(title)
    Console().print(drawn)
