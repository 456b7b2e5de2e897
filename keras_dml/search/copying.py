"""Push: rows are copied into a database, and compared with what is there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_dml.search.database import DatabaseGallery
from keras_dml.search.gallery import Block
from keras_dml.search.kinds import Kind
from keras_dml.search.sources import Source, longest_of, sampled
from keras_dml.search.state import State
from keras_dml.search.table import Table
from keras_dml.utils.progress import throughput

COMPARED = 100
"""Rows that are read back and compared."""

BATCH = 5000
"""Rows that are written at a time."""

_EQUAL = 1e-6


@dataclass(frozen=True)
class Pushed:
    """What a push has done, and compared.

    Attributes:
        uri: The address.
        rows: Rows that the database has, as many as there were to copy.
        written: How many of them this call wrote; others were there.
        compared: How many rows, drawn at random, were read back: keys and
            columns equal, vectors to 1e-6.
    """

    uri: str
    rows: int
    written: int
    compared: int

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.uri}, {self.written:,} of them "
            f"written now. Compared: their number, and {self.compared} rows "
            "drawn at random, which are equal."
        )


def copy(
    source: Source,
    table: Table,
    factory: str,
    parameters: str | None,
    overwrite: bool = False,
    batch_size: int = BATCH,
) -> tuple[DatabaseGallery, Pushed]:
    """Copies rows into a table of a database, or goes on with that.

    Args:
        source: The rows.
        table: Where they go.
        factory, parameters: The kind of index, as of `Index`.
        overwrite: Whether an index of other rows is replaced.
        batch_size: Rows that are written at a time.

    Raises:
        FileExistsError: If something else is there; then nothing was touched.
        OSError: If the database cannot be reached, or was lost on the way: the
            same call continues. Or if what it holds is not what was pushed.
    """
    kind = Kind.of(factory, parameters, table.engine)
    state = source.state.changed(factory=factory, parameters=kind.parameters)
    gallery = _begun(table, state, overwrite)
    if not gallery.state.is_whole:
        gallery.begin()
    drawn = np.random.default_rng(0).permutation(source.count)[:COMPARED]
    expected: list[Block] = []
    written = first = 0
    try:
        with throughput(source.count, 0, "rows", "Writing", None) as count:
            for block in source.blocks(batch_size):
                rows = np.sort(drawn) - first
                first += len(block)
                expected += sampled(rows[rows >= 0], [block])
                written += _write_missing(gallery, block)
                count(len(block))
        if not gallery.state.is_whole:
            table.build(gallery.kind)
            gallery.finish()
    except OSError as error:
        raise OSError(
            f"{table} was lost, or refused, after {first:,} of "
            f"{source.count:,} rows: {error} Existing rows are kept: the same "
            "call continues."
        ) from error
    compared = sum(len(block) for block in expected)
    _compare(gallery, source.count, expected)
    return gallery, Pushed(table.uri, source.count, written, compared)


def _begun(table: Table, state: State, overwrite: bool) -> DatabaseGallery:
    """The gallery that is to hold the rows, which may have some already."""
    if table.exists():
        text = table.read_state()
        if text is None:
            raise FileExistsError(
                f"`uri` must be new, or hold an index of keras_dml. Received: "
                f"{table}, which holds something else. Nothing was touched. "
                "Use another name."
            )
        there = _readable(text, table, overwrite)
        if there is not None and not (difference := _difference(there, state)):
            return DatabaseGallery(table, there)
        if there is not None and not overwrite:
            raise FileExistsError(
                f"`uri` must be new, or hold these rows. Received: {table}, "
                f"which holds an index of {difference}. Nothing was touched. "
                "Use overwrite=True to replace it, or another name."
            )
        table.drop()
    table.create(state)
    return DatabaseGallery(table, state)


def _readable(text: str, table: Table, overwrite: bool) -> State | None:
    """What a table holds; None if it was only begun, or may be replaced."""
    if not text:
        return None
    try:
        return State.from_json(text, repr(table))
    except ValueError:
        if overwrite:
            return None
        raise


def _difference(there: State, wanted: State) -> str:
    """In what an index that is there is another; empty if it is the same."""
    for name in ("dim", "metric", "keys", "factory", "parameters"):
        mine, its = getattr(wanted, name), getattr(there, name)
        if mine != its:
            return f"another {name}: {its!r}, not {mine!r}"
    if there.source != wanted.source:
        return "other rows"
    return ""


def _write_missing(gallery: DatabaseGallery, block: Block) -> int:
    """Writes the rows that are not there yet; says how many."""
    there = gallery.ids_between(int(block.ids[0]), int(block.ids[-1]) + 1)
    missing = np.flatnonzero(~np.isin(block.ids, there))
    if len(missing):
        (rows,) = sampled(missing, [block])
        gallery.fill(rows, longest_of(rows))
    return len(missing)


def _compare(
    gallery: DatabaseGallery, count: int, expected: list[Block]
) -> None:
    """OSError if a database does not hold what was written."""
    if len(gallery) != count:
        raise _refusal(gallery, f"{len(gallery):,} rows, not {count:,}")
    for block in expected:
        found = gallery.rows(block.ids)
        if found.ids.tolist() != block.ids.tolist():
            raise _refusal(gallery, "rows that are missing")
        gap = np.abs(found.vectors - block.vectors).max(initial=0)
        if not gap <= _EQUAL:
            raise _refusal(gallery, f"vectors that differ by {gap:.3g}")
        if found.keys != block.keys:
            raise _refusal(gallery, "other keys")
        for name, values in _whole(block, found):
            if found.columns[name] != values:
                raise _refusal(gallery, f"other values in the column {name!r}")


def _whole(block: Block, found: Block) -> Iterator[tuple[str, list[Any]]]:
    """Columns, also those that a block lacks, as None."""
    for name in found.columns:
        yield name, block.columns.get(name, [None] * len(block))


def _refusal(gallery: DatabaseGallery, how: str) -> OSError:
    return OSError(
        f"{gallery.place} must hold what was written. Received: {how}. Another "
        "process may write there: push again with overwrite=True."
    )
