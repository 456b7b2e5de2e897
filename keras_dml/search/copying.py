"""Push: copying rows into a database, and verifying the copy."""

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
"""Number of rows that are read back and compared."""

BATCH = 5000
"""Number of rows written at a time."""

_EQUAL = 1e-6


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    Attributes:
        uri: The address of the index.
        rows: Number of rows in the database, the same as in the source.
        written: Number of rows written by this call; the others were already
            there.
        compared: Number of randomly drawn rows that were read back: keys and
            columns are equal, vectors agree to 1e-6.
    """

    uri: str
    rows: int
    written: int
    compared: int

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.uri}, {self.written:,} of them "
            "written by this call. Verified: the number of rows, and the "
            f"contents of {self.compared} randomly drawn ones."
        )


def copy(
    source: Source,
    table: Table,
    factory: str,
    parameters: str | None,
    overwrite: bool = False,
    batch_size: int = BATCH,
) -> tuple[DatabaseGallery, Pushed]:
    """Copies rows into a table of a database, or resumes copying.

    Args:
        source: The rows.
        table: The table to write to.
        factory, parameters: The kind of index, as for `Index`.
        overwrite: Whether to replace an index of other rows.
        batch_size: Number of rows written at a time.

    Raises:
        FileExistsError: If the table holds something else. Nothing is touched
            in this case.
        OSError: If the database cannot be reached, or the connection was lost
            meanwhile (the same call resumes), or if it does not hold what was
            pushed.
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
            f"The push to {table} failed after {first:,} of {source.count:,} "
            f"rows: {error} The rows already written are kept. Repeat the same "
            "call to continue."
        ) from error
    compared = sum(len(block) for block in expected)
    _compare(gallery, source.count, expected)
    return gallery, Pushed(table.uri, source.count, written, compared)


def _begun(table: Table, state: State, overwrite: bool) -> DatabaseGallery:
    """The gallery to hold the rows, which may already have some of them."""
    if table.exists():
        text = table.read_state()
        if text is None:
            raise FileExistsError(
                "`uri` must be new, or hold a keras_dml index. Received: "
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
    """The state of a table; None if it was only begun, or may be replaced."""
    if not text:
        return None
    try:
        return State.from_json(text, repr(table))
    except ValueError:
        if overwrite:
            return None
        raise


def _difference(there: State, wanted: State) -> str:
    """How the existing index differs; empty if it is the same."""
    for name in ("dim", "metric", "keys", "factory", "parameters"):
        mine, its = getattr(wanted, name), getattr(there, name)
        if mine != its:
            return f"a different {name}: {its!r}, not {mine!r}"
    if there.source != wanted.source:
        return "other rows"
    return ""


def _write_missing(gallery: DatabaseGallery, block: Block) -> int:
    """Writes the rows that are missing, and returns their number."""
    there = gallery.ids_between(int(block.ids[0]), int(block.ids[-1]) + 1)
    missing = np.flatnonzero(~np.isin(block.ids, there))
    if len(missing):
        (rows,) = sampled(missing, [block])
        gallery.fill(rows, longest_of(rows))
    return len(missing)


def _compare(
    gallery: DatabaseGallery, count: int, expected: list[Block]
) -> None:
    """OSError if the database does not hold what was written."""
    if len(gallery) != count:
        raise _refusal(gallery, f"{len(gallery):,} rows instead of {count:,}")
    for block in expected:
        found = gallery.rows(block.ids)
        if found.ids.tolist() != block.ids.tolist():
            raise _refusal(gallery, "missing rows")
        gap = np.abs(found.vectors - block.vectors).max(initial=0)
        if not gap <= _EQUAL:
            raise _refusal(gallery, f"vectors that differ by {gap:.3g}")
        if found.keys != block.keys:
            raise _refusal(gallery, "other keys")
        for name, values in _whole(block, found):
            if found.columns[name] != values:
                raise _refusal(gallery, f"different values of column {name!r}")


def _whole(block: Block, found: Block) -> Iterator[tuple[str, list[Any]]]:
    """All columns; those missing from a block are None."""
    for name in found.columns:
        yield name, block.columns.get(name, [None] * len(block))


def _refusal(gallery: DatabaseGallery, how: str) -> OSError:
    return OSError(
        f"{gallery.place} must hold what was written. Received: {how}. Another "
        "process may be writing to it. Push again with overwrite=True."
    )
