"""Pushing: addresses of databases, and copying rows into them."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128_hexdigest

from keras_dml.embedding import EmbeddingShards
from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.database import BATCH, DatabaseGallery
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import Form
from keras_dml.search.gallery import Gallery, block_of, built, check_shards
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import Block
from keras_dml.search.state import Kind, State
from keras_dml.utils.progress import throughput
from keras_dml.utils.vectors import blocks

FORMS = (
    "lancedb://FOLDER/TABLE, lancedb+s3://BUCKET/PATH/TABLE, "
    "milvus://HOST:PORT/COLLECTION, milvus+https://HOST:PORT/COLLECTION or "
    "milvus://FOLDER/FILE.db/COLLECTION"
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\+([A-Za-z0-9]+))?://(.*)")


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    Attributes:
        uri: The address of the index.
        rows: Number of rows in the database, the same as in the source.
        written: Number of rows written by this call; the others were already
            there.
    """

    uri: str
    rows: int
    written: int

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.uri}, {self.written:,} of them "
            "written by this call."
        )


@dataclass(frozen=True)
class Source:
    """Rows to be written into a database.

    Attributes:
        count: How many there are, N.
        state: What the database is to say of them, but for the kind of index.
        blocks: Maps a number of rows to an iterator over blocks of at most this
            size, with ascending ids; it can be called repeatedly.
    """

    count: int
    state: State
    blocks: Callable[[int], Iterator[Block]]

    @classmethod
    def of_gallery(
        cls,
        gallery: Gallery,
        model: ModelIdentity | None,
        threshold: AnyThreshold | None,
    ) -> "Source":
        """The rows of an index, by the ids that they have there."""
        state = State(
            dim=gallery.dim,
            metric=gallery.metric.name,
            keys=_kind_of(gallery.blocks),
            next_id=gallery.next_id,
            threshold=threshold,
            model=model,
        ).with_types(gallery.types)
        return cls(len(gallery), state, gallery.blocks)

    @classmethod
    def of_shards(
        cls,
        shards: EmbeddingShards,
        by: Metric,
        keys: str,
        model: ModelIdentity | None,
    ) -> "Source":
        """The rows of a folder of embeddings, by their numbers."""

        def read(size: int) -> Iterator[Block]:
            for shard in shards:
                block = block_of(shard, by, keys)
                for part in blocks(len(block), size):
                    yield block.taken(part)

        known = f"{shards.digest} {keys} {by.name}"
        state = State(
            dim=shards.dim,
            metric=by.name,
            keys=_kind_of(read),
            source=xxh3_128_hexdigest(known.encode()),
            next_id=len(shards),
            model=model,
        )
        return cls(len(shards), state, read)


def is_database(uri: str | os.PathLike[str]) -> bool:
    """Whether an address is that of a database rather than a folder."""
    return not isinstance(uri, Path) and "://" in os.fspath(uri)


def database_at(uri: str, owner: str) -> DatabaseGallery:
    """The table of a database at an address, without asking for it.

    Raises:
        ImportError: If the extra of that database is not installed.
        ValueError: If it is no such address.
    """
    match = _SCHEME.fullmatch(str(uri))
    scheme, inner, rest = match.groups() if match else ("", None, "")
    place, _, name = rest.rpartition("/")
    if scheme not in ("lancedb", "milvus") or not place:
        raise ValueError(
            f"`uri` of {owner} must be {FORMS}. Received: {_shown(uri)!r}."
        )
    if "@" in place.partition("/")[0]:
        raise ValueError(
            f"`uri` of {owner} must not contain a password, because error "
            f"messages would show it. Received: {_shown(uri)!r}. Use "
            "environment variables: MILVUS_TOKEN, or those of the object store."
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"`uri` of {owner} must end with the name of a table: letters, "
            f"digits and _. Received: {name!r} in {_shown(uri)!r}."
        )
    if scheme == "lancedb":
        from keras_dml.search.lance import LanceGallery

        folder = f"{inner}://{place}" if inner else place
        return LanceGallery(str(uri), folder, name)
    from keras_dml.search.milvus import MilvusGallery

    is_file = place.endswith(".db")
    address = place if is_file else f"{inner or 'http'}://{place}"
    return MilvusGallery(str(uri), address, name)


def _shown(uri: object) -> str:
    """An address without a password."""
    return re.sub(r"//[^/@]*@", "//…@", str(uri))


def check_kind(uri: str, form: Form, owner: str) -> None:
    """ValueError if the database at an address has no such kind of index."""
    Kind.of(form.codes, form.parameters, database_at(uri, owner).engine)


def filled(
    given: tuple[Any, Any, Any], form: Form, encoder: Encoder, uri: str
) -> DatabaseGallery:
    """The gallery of a new index in a database; see `built`."""
    embeddings, columns, keys = given
    by = form.metric
    if isinstance(embeddings, EmbeddingShards):
        encoder.expect(embeddings.model)
        column = check_shards(embeddings, columns, keys)
        source = Source.of_shards(embeddings, by, column, encoder.identity)
    else:
        local, _ = built(given, Form(by), encoder)
        source = Source.of_gallery(local, encoder.identity, None)
    gallery = database_at(uri, "Index")
    copy(source, gallery, form.codes, form.parameters)
    return gallery


def copy(
    source: Source,
    gallery: DatabaseGallery,
    factory: str,
    parameters: str | None,
    overwrite: bool = False,
    batch_size: int = BATCH,
) -> Pushed:
    """Copies rows into a table of a database; arguments are as of `push`.

    Raises:
        FileExistsError: If the table holds something else. Nothing is touched
            in this case.
        OSError: If the database cannot be reached, the connection was lost
            meanwhile, or there are other rows in the end.
    """
    parameters = Kind.of(factory, parameters, gallery.engine).parameters
    state = replace(source.state, factory=factory, parameters=parameters)
    _begin(gallery, state, overwrite)
    written = first = 0
    try:
        with throughput(source.count, 0, "rows", "Writing", None) as count:
            for block in source.blocks(batch_size):
                written += _write_missing(gallery, block)
                first += len(block)
                count(len(block))
        if not gallery.state.is_whole:
            gallery.build()
            gallery.record(is_whole=True)
    except OSError as error:
        raise OSError(
            f"The push to {gallery.store} failed after {first:,} of "
            f"{source.count:,} rows: {error} Repeat the same call."
        ) from error
    if (there := len(gallery)) != source.count:
        raise OSError(
            f"{gallery.store} must hold what was written. Received: {there:,} "
            f"rows instead of {source.count:,}. Another process may be writing "
            "to it. Push again with overwrite=True."
        )
    return Pushed(gallery.store, source.count, written)


def _begin(gallery: DatabaseGallery, state: State, overwrite: bool) -> None:
    """Opens the table, which may already have some of the same rows."""
    if gallery.exists():
        text = gallery.read_state()
        if text is None:
            raise FileExistsError(
                "`uri` must be new, or hold a keras_dml index. Received: "
                f"{gallery.store}, which holds something else. Nothing was "
                "touched. Use another name."
            )
        there = _readable(text, gallery.store, overwrite)
        if there and there.source and there.is_like(state):
            return gallery.use(there)
        if there and (there.source or there.is_whole) and not overwrite:
            raise FileExistsError(
                "`uri` must be new, or hold these rows. Received: "
                f"{gallery.store}, which holds another index. Nothing was "
                "touched. Use overwrite=True to replace it, or another name."
            )
        gallery.drop()
    gallery.use(state)
    gallery.create()


def _readable(text: str, uri: str, overwrite: bool) -> State | None:
    """The state of a table; None if it was only begun, or may be replaced."""
    if not text:
        return None
    try:
        return State.from_json(text, uri)
    except ValueError:
        if overwrite:
            return None
        raise


def _write_missing(gallery: DatabaseGallery, block: Block) -> int:
    """Writes the rows that are missing, and returns their number."""
    ends = f"id >= {block.ids[0]} and id <= {block.ids[-1]}"
    there = gallery.read(ends, columns=False).ids
    missing = np.flatnonzero(~np.isin(block.ids, there))
    if len(missing):
        rows = block.taken(missing)
        gallery.record(rows.columns, source=gallery.state.source)
        gallery.append(rows)
    return len(missing)


def _kind_of(read: Callable[[int], Iterator[Block]]) -> Any:
    """The name of the type of the keys; None for rows without keys."""
    first = next(read(1), None)
    return type(first.keys[0]).__name__ if first and first.keys else None
