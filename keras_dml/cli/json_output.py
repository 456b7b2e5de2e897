"""`--json`: one document on standard output, all else on standard error."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
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
    """Prints what a command has found, if it was asked for --json."""
    stream = click.get_current_context().meta.get(_STREAM)
    if stream is not None:
        text = json.dumps(plain(document), indent=1, allow_nan=False)
        print(text, file=stream, flush=True)


def plain(value: Any) -> Any:
    """A value as JSON has it.

    Numbers that JSON has not, NaN and infinities, are null. Of dataclasses
    and arrays it takes the contents; of anything else, such as paths and
    dates, the text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {x.name: plain(getattr(value, x.name)) for x in fields(value)}
    if hasattr(value, "tolist"):  # Of NumPy, which this need not import.
        return plain(value.tolist())
    return str(value)
