"""LanceTable: an index in LanceDB, on a disk or in an object store."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from typing import Any

from keras_dml.search import lance_format
from keras_dml.search.gallery import Block
from keras_dml.search.kinds import Kind
from keras_dml.search.lance_format import STATE
from keras_dml.search.lance_language import LanceLanguage
from keras_dml.search.state import State
from keras_dml.search.table import Found, Table, Types, first_line
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.types import FloatArray

_REFINED = 10
"""This multiple of k compressed candidates is compared exactly."""

_MANY = 100
"""Files of rows, one of each write, from which on they are joined."""

_STORE = {"connect_timeout": "5s", "timeout": "60s", "client_max_retries": "2"}


class LanceTable(LanceLanguage, Table):
    """A table of LanceDB, of which a column each is the id, key and vector.

    Methods are as of `Table`.

    Args:
        uri: What messages call it.
        folder: The folder of tables, a path or an address.
        name: The name of the table.
    """

    engine = "LanceDB"
    most = 2**31 - 1

    def __init__(self, uri: str, folder: str, name: str) -> None:
        super().__init__(uri)
        self._lance = import_extra("An index in LanceDB", "lancedb", "lancedb")
        self._folder, self._name = folder, name
        self._is_local = "://" not in folder
        self._table: Any = None

    @cached_property
    def _base(self) -> Any:
        """The folder, which is made where it is not there."""
        return self._lance.connect(
            os.path.abspath(self._folder) if self._is_local else self._folder,
            # A reader sees what was written before it reads.
            read_consistency_interval=timedelta(0),
            storage_options=None if self._is_local else _STORE,
        )

    def exists(self) -> bool:
        if self._is_local and not os.path.isdir(self._folder):
            return False
        with self._calling():
            page = self._base.list_tables()
            while self._name not in page.tables and page.page_token:
                page = self._base.list_tables(page_token=page.page_token)
            return self._name in page.tables

    def create(self, state: State) -> None:
        with self._calling():
            self._table = self._base.create_table(
                self._name, schema=lance_format.schema(state)
            )
        self.write_state(state)

    def drop(self) -> None:
        with self._calling():
            self._base.drop_table(self._name)
        self._table = None

    def read_state(self) -> str | None:
        schema = self._opened().schema
        place = schema.get_field_index("id")
        metadata = schema.field(place).metadata if place >= 0 else None
        text = (metadata or {}).get(STATE.encode())
        return None if text is None else text.decode()

    def write_state(self, state: State) -> None:
        table = self._opened()
        new = lance_format.new_columns(table.schema, state.types)
        with self._calling():
            if new:
                table.add_columns(new)
            table.update_field_metadata(
                {"path": "id", "metadata": {STATE: state.to_json()}}
            )

    def count(self, where: str = "") -> int:
        with self._calling():
            return int(self._opened().count_rows(where or None))

    def append(self, block: Block) -> None:
        with self._calling():
            self._opened().add(lance_format.batch(block, self._opened().schema))

    def put(self, block: Block) -> None:
        by = "id" if block.keys is None else "key"
        rows = lance_format.batch(block, self._opened().schema)
        with self._calling():
            merge = self._opened().merge_insert(by).when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows)

    def delete(self, where: str) -> None:
        with self._calling():
            self._opened().delete(where)

    def read(self, where: str, columns: Types, vectors: bool = False) -> Block:
        table = self._opened()
        fields = lance_format.fields(table.schema, columns, vectors)
        with self._calling():
            query = table.search().where(where).select(fields)
            found = query.limit(self.most).to_arrow()
        return lance_format.block(found, columns)

    def nearest(
        self, queries: FloatArray, k: int, where: str, kind: Kind, share: float
    ) -> list[Found]:
        with self._calling():
            query = self._search(queries, where).limit(k)
            if kind.is_exact:
                query = query.bypass_vector_index()
            elif kind.lists:
                probes = kind.effort_for(share, kind.lists)
                query = query.nprobes(probes).refine_factor(_REFINED)
            else:
                query = query.ef(max(k, kind.effort_for(share, 2**15)))
            found = query.to_arrow()
        return lance_format.by_query(found, len(queries), self._shift)

    def within(
        self, query: FloatArray, bound: float, where: str, kind: Kind
    ) -> Found:
        most = max(1, self.count(where))
        with self._calling():
            near = self._search(query[None], where).bypass_vector_index()
            near = near.distance_range(None, self._shift - bound)
            found = near.limit(most).to_arrow()
        return lance_format.by_query(found, 1, self._shift)[0]

    def build(self, kind: Kind) -> None:
        count, table = self.count(), self._opened()
        with self._calling():
            if table.stats()["fragment_stats"]["num_fragments"] > _MANY:
                table.optimize()
            there = {x.columns[0] for x in table.list_indices()}
            lance_format.build_scalars(table, there)
        if kind.is_exact or "vector" in there:
            return
        made = lance_format.vector_index(kind, count, self._distance)
        try:
            table.create_index("vector", config=made)
        except (RuntimeError, ValueError) as error:
            raise kind.refusal(count, self.engine, error) from None

    def close(self) -> None:
        self._table = None

    @property
    def _distance(self) -> str:
        # Vectors are of unit length where scores are cosines.
        return "l2" if self.is_distance else "dot"

    @property
    def _shift(self) -> float:
        # Distances are |x − y|² and 1 − x·y.
        return 0.0 if self.is_distance else 1.0

    def _opened(self) -> Any:
        if self._table is None:
            with self._calling():
                self._table = self._base.open_table(self._name)
        return self._table

    def _search(self, queries: FloatArray, where: str) -> Any:
        query = self._opened().search(queries).distance_type(self._distance)
        query = query.select(["id", "vector", "_distance"])
        return query.where(where) if where else query

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """OSError where LanceDB cannot do what it is asked to."""
        try:
            yield
        except Exception as error:
            raise OSError(
                f"{self} cannot be reached, read or written. LanceDB says: "
                f"{first_line(error)}"
            ) from error
