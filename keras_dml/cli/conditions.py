"""Conditions: filters of a search as they are written in a shell."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

_CONDITION = re.compile(r"([^=<>!]+)(!=|<=|>=|=|<|>)(.+)", re.DOTALL)


def read_conditions(
    texts: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> dict[str, dict[str, Any]]:
    """Conditions as `Index.search` takes them.

    Args:
        texts: Such as "name=crow" and "price>=10".
        columns: Values by column, which say what a text stands for.

    Raises:
        ValueError: If one is not written so, or cannot be true.
    """
    where: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if not match:
            raise ValueError(
                "--where must be written column=value, or with !=, <, <=, > "
                f"or >=. Received: {text!r}. For instance name=crow."
            )
        name, sign, value = match.groups()
        condition = where.setdefault(name, {})
        column = columns.get(name, ())
        lists = [x for x in column if isinstance(x, list)]
        if lists and sign == "=":
            values = _values(text, value, [x for row in lists for x in row])
            condition.setdefault("contains", []).extend(values)
            continue
        values = _values(text, value, column)
        if sign in ("=", "!="):
            operator = "==" if sign == "=" else sign
            condition.setdefault(operator, []).extend(values)
        elif sign in condition:
            raise ValueError(
                f"--where must not use {sign} more than once for a column. "
                f"Received: {text!r} after another one."
            )
        else:
            condition[sign] = values[-1]
    return where


def _values(text: str, value: str, column: Sequence[Any]) -> list[Any]:
    """The values that a text may stand for in a column."""
    kinds = set(map(type, column)) - {type(None)}
    values: list[Any] = [value] if not kinds or str in kinds else []
    if bool in kinds and value.lower() in ("true", "false"):
        values.append(value.lower() == "true")
    if kinds & {int, float}:
        with contextlib.suppress(ValueError):
            values.append(_number(value))
    if not values:
        raise ValueError(
            "--where must compare a column with values of its own kind. "
            f"Received: {text!r}, where the column holds values such as "
            f"{next(x for x in column if x is not None)!r}."
        )
    return values


def _number(value: str) -> int | float:
    with contextlib.suppress(ValueError):
        return int(value)
    return float(value)
