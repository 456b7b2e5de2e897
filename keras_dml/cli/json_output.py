"""`--json`: one document on standard output, all else on standard error."""

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import wraps
from typing import Any

import click

_STREAM = "keras_dml.cli.json_output"


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command that calls `answer`; stands above `command_body`.

    With --json, what the command and the libraries below it print goes to
    standard error.
    """

    @click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON document, and everything else to standard error.",
    )
    @wraps(command)
    def wrapped(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        if not as_json:
            return command(*args, **kwargs)
        click.get_current_context().meta[_STREAM] = sys.stdout
        with redirect_stdout(sys.stderr):
            return command(*args, **kwargs)

    return wrapped


def answer(document: Mapping[str, Any]) -> None:
    """Prints a command's result, if it was asked for --json.

    NaN and infinities, which JSON has not, are null. Arrays become lists, and
    other objects, such as paths, their text.
    """
    stream = click.get_current_context().meta.get(_STREAM)
    if stream is not None:
        from pydantic_core import to_json

        text = to_json(document, indent=1, inf_nan_mode="null", fallback=_plain)
        print(text.decode(), file=stream, flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    # NumPy's arrays and numbers have it, and NumPy need not be imported here.
    return value.tolist() if hasattr(value, "tolist") else str(value)
