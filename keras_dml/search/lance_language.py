"""LanceLanguage: names of columns, and conditions, in the SQL of LanceDB."""

import re
from collections.abc import Sequence
from typing import Any

from keras_dml.search.expressions import Language, widest

OWN = ("id", "key", "vector")
"""Columns that are none of the user's."""


class LanceLanguage(Language):
    """Conditions on a table."""

    nothing = "false"

    def one_of(self, field: str, values: Sequence[Any]) -> str:
        """That a column, "id" or "key" has a value, one of some."""
        column = field if field in OWN else f"`{physical(field)}`"
        listed = ", ".join(map(_literal, values))
        return f"({column} is not null and {column} in ({listed}))"

    def unknown(self, name: str) -> str:
        """That a column has no value."""
        return f"`{physical(name)}` is null"

    def compared(self, name: str, sign: str, value: Any) -> str:
        """That a column has a value, which is less, or so."""
        return f"`{physical(name)}` {sign} {_literal(value)}"

    def expression(
        self, name: str, sign: str, wanted: Any, types: set[type]
    ) -> str:
        """One of `filters.conditions`, for a column of some types."""
        if not types:  # It has no place in the table.
            passes = sign in ("==", "!=") and (None in wanted) == (sign == "==")
            return "true" if passes else "false"
        kept = {widest(types)}
        return super().expression(name, sign, wanted, kept)


def physical(name: str) -> str:
    """The name that a column has in the table."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
        if name.lower() not in OWN and not name.startswith("column_"):
            return name
    return f"column_{name.encode().hex()}"


def _literal(value: Any) -> str:
    """A value in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if type(value) is int and value == -(
        2**63
    ):  # Without its sign it is no number of 64 bits.
        return f"cast('{value}' as bigint)"
    return repr(value).lower()
