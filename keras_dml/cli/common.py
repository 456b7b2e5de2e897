"""Shared by all commands: options, start-up, errors, output.

With `--json`, one document is on standard output, all else on standard error.
"""

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from keras_dml.utils.progress import hold_back_stderr, printable

if TYPE_CHECKING:
    from keras_dml.runs.outcome import Table

_STREAM = "keras_dml.cli.stream"

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

# What users can fix; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, ImportError)
_EXHAUSTED = "ResourceExhausted"
_FILES = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".json", ".index")
"""Suffixes of names that are files rather than folders."""


class OutputFolder(click.Path):
    """A folder that is new or exists, or the address of one."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path; a usage error if it is a file or named like one."""
        path = Path(value)
        if path.suffix.lower() in _FILES and not path.is_dir():
            self.fail(
                f"{os.fspath(value)!r} is named like a file, but will be a "
                f"folder. Use a name such as {path.stem!r}.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


setting_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.KEY=VALUE",
    help="Change a setting of the recipe; may be repeated.",
)

save_every_option = click.option(
    "--save-every",
    metavar="STEPS|TIME",
    help="Also save the training state within epochs: after a number of "
    "steps, such as 200, or after a time, such as 90s, 5m or 1h.",
)

model_option = click.option(
    "--model",
    "which",
    type=click.Choice(["best", "last"]),
    default="best",
    help="Model of the run.",
)


engine_option = click.option(
    "--engine",
    type=click.Choice(["keras", "openvino"]),
    default="keras",
    help="Engine that embeds: openvino, an extra, is faster on CPUs.",
)


def _trust(
    context: click.Context, option: click.Parameter, is_given: bool
) -> None:
    """Trusts all files that the command reads."""
    from keras_dml.utils.trust import reading

    context.with_resource(reading(trust=is_given))


trust_option = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,
    callback=_trust,
    help="Import modules that the recipe of a run names, and run code in the "
    "model. Use it only if you know who made them.",
)


def example(*lines: str) -> str:
    """The example at the end of a command's help, which docs also show."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def command(*lines: str) -> Callable[..., Any]:
    """A decorator that makes a command with an `example`."""
    return click.command(epilog=example(*lines))


def output_option(text: str, **options: Any) -> Callable[..., Any]:
    """A decorator that adds --output, a folder."""
    return click.option("--output", type=OutputFolder(), help=text, **options)


def recipe_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Shell completions of a recipe: included names, and files."""
    from keras_dml.recipes import included

    names = [x for x in included.names() if x.startswith(incomplete)]
    files = CompletionItem(incomplete, type="file")
    return [*map(CompletionItem, names), files]


recipe_argument = click.argument("recipe", shell_complete=recipe_names)


def on_tensorflow(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command that computes with TensorFlow, on any backend."""

    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "keras" not in sys.modules:  # Whose backend is then fixed.
            os.environ["KERAS_BACKEND"] = "tensorflow"
        return command(*args, **kwargs)

    return call


def command_body(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command with `json_option`; it then imports the package.

    TensorFlow is thus imported only when the command runs.
    """

    @json_option
    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        import_package()
        return command(*args, **kwargs)

    return call


@contextmanager
def user_errors() -> Iterator[None]:
    """Prints errors that a user can fix as one message, without a traceback.

    The command ends with status 1, and with 130 after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = _user_message(error)
        if message is None or os.environ.get("KERAS_DML_TRACEBACK"):
            raise
        raise click.ClickException(printable(message)) from error


def _user_message(error: Exception) -> str | None:
    """The message of an error that a user can fix; None of any other."""
    if isinstance(error, BrokenPipeError):
        return None  # The reader is gone, as after `head`: click ends quietly.
    # TensorFlow's error by its name: this module must not import TensorFlow.
    if isinstance(error, MemoryError) or _EXHAUSTED in type(error).__name__:
        why = str(error).partition("\n")[0][:300]
        return (
            f"Not enough memory ({why}). Use smaller batches, images, queues "
            "or embeddings."
        )
    return str(error) if isinstance(error, USER_ERRORS) else None


def import_package() -> None:
    """Imports all parts of the package, whose classes saved models name.

    TensorFlow's C++ code logs only what ends the program, unless
    TF_CPP_MIN_LOG_LEVEL is set. Among its errors are notes on optimizations
    that it leaves out; those that matter are also Python exceptions.
    """
    if "tensorflow" not in sys.modules and sys.stderr.isatty():
        say("Loading TensorFlow …", err=True)
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if level in ("2", "3") and "tensorflow" not in sys.modules:
        # At every log level, it notes that it uses oneDNN, from C++ and before
        # its log can be set.
        with hold_back_stderr():
            import tensorflow as tf

            if not os.path.exists("/dev/nvidiactl"):
                # It would note later, as an error, that there is no GPU.
                tf.config.list_physical_devices("GPU")
    import keras_dml

    keras_dml.import_parts()


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command that calls `answer` with --json."""

    @click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON document, and everything else to standard error.",
    )
    @wraps(command)
    def call(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        if not as_json:
            return command(*args, **kwargs)
        click.get_current_context().meta[_STREAM] = sys.stdout
        with redirect_stdout(sys.stderr):
            return command(*args, **kwargs)

    return call


def answer(document: Mapping[str, Any]) -> None:
    """Prints a command's result as JSON, if --json was given.

    NaN and infinities become null, arrays lists, and other objects, such as
    paths, text.
    """
    stream = click.get_current_context().meta.get(_STREAM)
    if stream is not None:
        from pydantic_core import to_json

        text = to_json(document, indent=1, inf_nan_mode="null", fallback=_plain)
        print(text.decode(), file=stream, flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    # Arrays and numbers of NumPy, which need not be imported here.
    return value.tolist() if hasattr(value, "tolist") else str(value)


def say(text: str, err: bool = False) -> None:
    """Prints a line with control characters escaped."""
    click.echo(printable(text), err=err)


def suggest(*words: object, err: bool = False) -> None:
    """Prints the command to type next, unless --json was given."""
    if _STREAM not in click.get_current_context().meta:
        say(f"Next: {shlex.join(map(str, words))}", err)


class PrintableFormatter(logging.Formatter):
    """Formats log lines with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def print_table(table: "Table", title: str, whole: bool = False) -> None:
    """Prints a header and rows under a title.

    With `whole`, cells stay on one line in a narrow window, too, so that paths
    can be copied.
    """
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text

    header, *rows = table
    # Digits are never cut off.
    rich_table = RichTable(*(Column(name, overflow="fold") for name in header))
    for row in rows:
        # As text: a name in brackets would be markup.
        rich_table.add_row(*(Text(printable(cell)) for cell in row))
    say(title)
    console = Console()
    if whole:
        unbounded = console.options.update(max_width=10**5)
        needed = console.measure(rich_table, options=unbounded).maximum
        console = Console(width=max(console.width, needed))
    console.print(rich_table)
