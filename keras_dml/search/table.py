"""Rows of an index as an Arrow table, which databases and data frames read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_dml.utils.types import FloatArray

if TYPE_CHECKING:
    import pyarrow

KEY, VECTOR = "key", "vector"
"""Names of the two columns that every gallery has."""


def arrow_table(
    keys: Sequence[Any],
    embeddings: FloatArray,
    columns: Mapping[str, Sequence[Any]],
) -> "pyarrow.Table":
    """Builds a table of keys, (N,), vectors, (N, D), and further columns.

    A column that is called "key" or "vector" becomes "row.key" or
    "row.vector".

    Raises:
        ValueError: If the values of a column have several types.
    """
    import pyarrow as arrow

    count, dim = embeddings.shape
    vectors = arrow.FixedSizeListArray.from_arrays(
        arrow.array(embeddings.reshape(-1), arrow.float32()), dim
    )
    arrays: dict[str, Any] = {KEY: arrow.array(keys), VECTOR: vectors}
    for name, values in columns.items():
        title = f"row.{name}" if name in (KEY, VECTOR) else name
        try:
            arrays[title] = arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            raise ValueError(
                "Index.table requires columns whose values have one type. "
                f"Received: the column {name!r} of {count} rows. Arrow says: "
                f"{error}"
            ) from None
    return arrow.table(arrays)
