"""MilvusLanguage: conditions as Milvus writes them, of fields and of JSON."""

from collections.abc import Sequence
from typing import Any

from keras_dml.search.expressions import Language, widest


class MilvusLanguage(Language):
    """Conditions on a collection.

    Attributes:
        fields: Types of the columns that have fields of their own, by name;
            others are in JSON.
    """

    nothing = "id < 0"

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}

    def one_of(self, field: str, values: Sequence[Any]) -> str:
        """That a column, "id" or "key" has a value, one of some."""
        if field in ("id", "key"):
            return f"{field} in [{', '.join(map(_literal, values))}]"
        if field in self.fields:
            listed = ", ".join(map(_literal, values))
            return f"(c_{field} is not null and c_{field} in [{listed}])"
        column = _column(field)
        same = [f"{column} == {_literal(x)}" for x in values]
        return f"(exists {column} and ({' or '.join(same)}))"

    def unknown(self, name: str) -> str:
        """That a column has no value."""
        if name in self.fields:
            return f"c_{name} is null"
        return f"not exists {_column(name)}"

    def compared(self, name: str, sign: str, value: Any) -> str:
        """That a column has a value, which is less, or so."""
        place = f"c_{name}" if name in self.fields else _column(name)
        return f"{place} {sign} {_literal(value)}"

    def expression(
        self, name: str, sign: str, wanted: Any, types: set[type]
    ) -> str:
        """One of `filters.conditions`, for a column of some types."""
        kept = {widest(types)} if name in self.fields else types
        return super().expression(name, sign, wanted, kept)


def _column(name: str) -> str:
    return f"columns[{_literal(name)}]"


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value).lower()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    for plain, letter in ("\n", "n"), ("\r", "r"), ("\t", "t"):
        escaped = escaped.replace(plain, f"\\{letter}")
    return f'"{escaped}"'
