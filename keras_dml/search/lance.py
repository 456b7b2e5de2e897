"""LanceGallery: an index in LanceDB, on a disk or in an object store."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np

from keras_dml.search.database import DatabaseGallery, first_line
from keras_dml.search.rows import Block
from keras_dml.search.state import State, type_of
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.types import FloatArray, Rows

_STATE = "keras_dml"

_OWN = ("id", "key", "vector")
"""Columns that are none of the user's."""

_REFINED = 10
"""This multiple of k compressed candidates is compared exactly."""

_GRAPH = 2**20
"""The largest number of vectors in one HNSW graph."""

_MANY = 100
"""Files of rows, one of each write, from which on they are joined."""

_STORE = {"connect_timeout": "5s", "timeout": "60s", "client_max_retries": "2"}


class LanceGallery(DatabaseGallery):
    """A table of LanceDB, of which a column each is the id, key and vector.

    Methods are as of `DatabaseGallery`. The folder of tables is a path or an
    address.
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

    def create(self) -> None:
        import pyarrow as arrow

        state = self.state
        vector = arrow.list_(arrow.float32(), state.dim)
        types = {"id": arrow.int64(), "vector": vector}
        if state.keys is not None:
            is_text = state.keys == "str"
            types["key"] = arrow.string() if is_text else arrow.int64()
        # A table that was only begun has an empty state.
        begun = {"id": {_STATE: ""}}
        fields = [
            arrow.field(x, types[x], nullable=False, metadata=begun.get(x))
            for x in _OWN
            if x in types
        ]
        with self._calling():
            self._table = self._base.create_table(
                self._name, schema=arrow.schema(fields)
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
        text = (metadata or {}).get(_STATE.encode())
        return None if text is None else text.decode()

    def write_state(self, state: State) -> None:
        import pyarrow as arrow

        table, new = self._opened(), []
        for name, types in state.types.items():
            if types:
                field = arrow.field(_physical(name), _type_of(name, types))
                place = table.schema.get_field_index(field.name)
                if place < 0:
                    new.append(field)
                elif (there := table.schema.field(place).type) != field.type:
                    where = f", which has the type {there}"
                    raise _refusal(name, types, where)
        with self._calling():
            if new:
                table.add_columns(new)
            table.update_field_metadata(
                {"path": "id", "metadata": {_STATE: state.to_json()}}
            )

    def place(self, name: str) -> str:
        return f"`{_physical(name)}`"

    def has_value(self, name: str) -> str:
        if not self.types[name]:  # It is no column of the table yet.
            return "false"
        return f"{self.place(name)} is not null"

    def one_of(self, place: str, values: Sequence[Any]) -> str:
        return f"{place} in ({', '.join(map(self.literal, values))})"

    def literal(self, value: Any) -> str:
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value).lower()

    def count(self, where: str = "") -> int:
        with self._calling():
            return int(self._opened().count_rows(where or None))

    def append(self, block: Block) -> None:
        with self._calling():
            self._opened().add(self._arrow(block))

    def put(self, block: Block) -> None:
        by, rows = "key" if self.has_keys else "id", self._arrow(block)
        with self._calling():
            merge = self._opened().merge_insert(by).when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows)

    def delete(self, where: str) -> None:
        with self._calling():
            self._opened().delete(where)

    def read(
        self, where: str, columns: bool = True, vectors: bool = False
    ) -> Block:
        types = self.types if columns else {}
        wanted = [*_OWN[: 2 + vectors], *map(_physical, types)]
        there = self._opened().schema.names
        with self._calling():
            query = self._opened().search().where(where)
            query = query.select([x for x in wanted if x in there])
            found = query.limit(self.most).to_arrow()
        values: dict[str, list[Any]] = {}
        for name, held in types.items():
            field = _physical(name)
            listed = found[field].to_pylist() if held else [None] * len(found)
            if held == {list}:
                listed = [None if x is None else json.loads(x) for x in listed]
            values[name] = listed
        x = np.empty((len(found), 0), np.float32)
        if vectors:
            flat = found["vector"].combine_chunks().flatten()
            x = flat.to_numpy(zero_copy_only=False).reshape(-1, self.dim)
        keys = found["key"].to_pylist() if self.has_keys else None
        return Block(found["id"].to_numpy(), x, values, keys)

    def search(
        self, queries: FloatArray, k: int, where: str, share: float
    ) -> list[tuple[Rows, FloatArray]]:
        kind = self.kind
        with self._calling():
            query = self._query(queries, where).limit(k)
            if self.is_exact:
                query = query.bypass_vector_index()
            elif kind.lists:
                probes = kind.effort(share, kind.lists)
                query = query.nprobes(probes).refine_factor(_REFINED)
            else:
                query = query.ef(max(k, kind.effort(share, 2**15)))
            found = query.to_arrow()
        ids, scores = self._scored(found)
        if len(queries) == 1:
            return [(ids, scores)]
        which = found["query_index"].to_numpy()
        masks = [which == query for query in range(len(queries))]
        return [(ids[x], scores[x]) for x in masks]

    def within(
        self, query: FloatArray, bound: float, where: str
    ) -> tuple[Rows, FloatArray]:
        most = max(1, self.count(where))
        with self._calling():
            near = self._query(query[None], where).bypass_vector_index()
            near = near.distance_range(None, self._shift - bound)
            return self._scored(near.limit(most).to_arrow())

    def build(self) -> None:
        import lancedb.index as library

        kind, count, table = self.kind, self.count(), self._opened()
        with self._calling():
            if table.stats()["fragment_stats"]["num_fragments"] > _MANY:
                table.optimize()
            there = {x.columns[0] for x in table.list_indices()}
            for name in {"id", "key"} & set(table.schema.names) - there:
                table.create_index(name, config=library.BTree())
        if self.is_exact or "vector" in there:
            return
        options: dict[str, Any] = {"distance_type": self._distance}
        if kind.links:
            options |= {"num_partitions": 1 + count // _GRAPH, "m": kind.links}
            maker = library.HnswFlat
        else:
            options["num_partitions"] = kind.lists
            if kind.parts:
                options["num_sub_vectors"] = kind.parts
            names = {"SQ8": "Sq", "RaBitQ": "Rq", "PQ": "Pq"}
            maker = getattr(library, f"Ivf{names.get(kind.code, kind.code)}")
        try:
            table.create_index("vector", config=maker(**options))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                "`factory` of an Index must fit the gallery. Received: "
                f"{kind.factory!r} for {count} vectors, which LanceDB refuses: "
                f"{first_line(error)}. Use 'Flat', or smaller numbers."
            ) from None

    def close(self) -> None:
        self._table = None

    @property
    def _distance(self) -> str:
        # Vectors are of unit length where scores are cosines.
        return "l2" if self.metric.is_distance else "dot"

    @property
    def _shift(self) -> float:
        # Distances are |x − y|² and 1 − x·y.
        return 0.0 if self.metric.is_distance else 1.0

    def _opened(self) -> Any:
        if self._table is None:
            with self._calling():
                self._table = self._base.open_table(self._name)
        return self._table

    def _query(self, queries: FloatArray, where: str) -> Any:
        query = self._opened().search(queries).distance_type(self._distance)
        query = query.select(["id", "_distance"])
        return query.where(where) if where else query

    def _scored(self, found: Any) -> tuple[Rows, FloatArray]:
        return (
            found["id"].to_numpy(),
            self._shift - found["_distance"].to_numpy().astype(np.float64),
        )

    def _arrow(self, block: Block) -> Any:
        """Rows as an Arrow table, as this one has them."""
        import pyarrow as arrow

        schema = self._opened().schema
        flat = arrow.array(block.vectors.reshape(-1))
        values: dict[str, Any] = {
            _physical(name): [
                json.dumps(x) if isinstance(x, list) else x for x in listed
            ]
            for name, listed in block.columns.items()
        }
        values |= {"id": block.ids, "key": block.keys}
        none = [None] * len(block)
        arrays = [
            arrow.FixedSizeListArray.from_arrays(flat, self.dim)
            if field.name == "vector"
            else arrow.array(values.get(field.name, none), field.type)
            for field in schema
        ]
        return arrow.table(arrays, schema=schema)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """OSError where LanceDB cannot do what it is asked to."""
        try:
            yield
        except Exception as error:
            raise OSError(
                f"{self.store} cannot be reached, read or written. LanceDB "
                f"says: {first_line(error)}"
            ) from error


def _physical(name: str) -> str:
    """The name that a column has in the table."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
        if name.lower() not in _OWN and not name.startswith("column_"):
            return name
    return f"column_{name.encode().hex()}"


def _type_of(name: str, types: set[type]) -> Any:
    """The type of a column that holds values of some types."""
    import pyarrow as arrow

    if (held := type_of(types)) is None:
        raise _refusal(name, types, "")
    numbers = {float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_()}
    return numbers.get(held, arrow.string())  # Lists are written as JSON.


def _refusal(name: str, types: set[type], where: str) -> ValueError:
    names = " and ".join(sorted(x.__name__ for x in types))
    return ValueError(
        "`columns` of an Index in LanceDB must each hold values of one type: "
        f"text, numbers, booleans or lists. Received: {names} in the column "
        f"{name!r}{where}. Use an index in a folder to mix types."
    )
