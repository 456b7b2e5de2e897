"""Reading the columns of CSV, TSV and Parquet files, as texts."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*_DELIMITERS, ".parquet")


def read_columns(
    file: Path, required: Sequence[str], optional: Sequence[str]
) -> dict[str, list[str]]:
    """The columns of a table that are asked for, without spaces around.

    Args:
        file: A file that ends in one of `FORMATS`.
        required: Columns that must be there.
        optional: Columns to read where they are there.

    Returns:
        Their texts by the columns' names.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If there is no library to read Parquet with.
        ValueError: If the format is another, a required column is missing,
            there are no rows, or a cell is empty.
    """
    if file.suffix.lower() not in FORMATS:
        raise ValueError(
            f"`path` of table must end in one of {FORMATS}. Received: "
            f"path={str(file)!r}."
        )
    if not file.is_file():
        raise FileNotFoundError(
            f"`path` of table must be a file. Received: path={str(file)!r}, "
            f"which is {'not one' if file.exists() else 'not there'}."
        )
    is_parquet = file.suffix.lower() == ".parquet"
    found = _read_parquet(file) if is_parquet else _read_text(file)
    missing = [name for name in required if name not in found]
    if missing:
        raise ValueError(
            f"The table {file} must have the columns {', '.join(required)}. "
            f"Received: {', '.join(found) or 'none'}; "
            f"{', '.join(missing)} missing. Rename the columns."
        )
    wanted = [x for x in (*required, *optional) if x in found]
    columns = {x: [_as_text(cell) for cell in found[x]] for x in wanted}
    _check_cells(columns, file)
    return columns


def _check_cells(columns: dict[str, list[str]], file: Path) -> None:
    for name, cells in columns.items():
        if not cells:
            raise ValueError(
                f"The table {file} must list images. Received: no rows."
            )
        if "" in cells:
            raise ValueError(
                f"The column `{name}` of {file} must not have empty cells. "
                f"Received: an empty cell in row {cells.index('') + 1}."
            )


def _as_text(cell: Any) -> str:
    # Of missing cells, None is Arrow's and the reader's of short lines;
    # NaN, unequal to itself, is that of pandas.
    is_missing = cell is None or cell != cell
    return "" if is_missing else str(cell).strip()


def _read_text(file: Path) -> dict[str, list[Any]]:
    delimiter = _DELIMITERS[file.suffix.lower()]
    # A spreadsheet's byte order mark is not part of the first name.
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.reader(opened, delimiter=delimiter)
        names = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, row) for row in reader if row]
    for line, row in rows:
        if len(row) > len(names):
            raise ValueError(
                f"Line {line} of {file} must have {len(names)} columns, as "
                f"the first has. Received: {len(row)}. Put cells with a "
                f"{delimiter!r} in them into double quotes."
            )
    return {
        name: [row[i] if i < len(row) else None for _, row in rows]
        for i, name in enumerate(names)
    }


def _read_parquet(file: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        return _read_with_pandas(file)
    return dict(parquet.read_table(file).to_pydict())


def _read_with_pandas(file: Path) -> dict[str, list[Any]]:
    try:
        import pandas

        return dict(pandas.read_parquet(file).to_dict("list"))
    except ImportError as error:
        raise ImportError(
            f"The Parquet file {file} needs pyarrow, or pandas with "
            "fastparquet, to be read. Use `pip install pyarrow`, or write "
            "the table as CSV."
        ) from error
