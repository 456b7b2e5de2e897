"""MilvusGallery: an index in Milvus, a cluster or embedded in a file."""

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from keras_dml.search.database import DatabaseGallery, first_line
from keras_dml.search.rows import Block
from keras_dml.search.state import State, type_of
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

CONNECT, CALL = 10, 30
"""Seconds after which a server counts as lost."""

_LONG = {"flush": 600, "load_collection": 600}
"""Seconds of calls that take long where there are many rows."""

_SENT = 2**24
"""Bytes of vectors that are sent at a time."""

_CANDIDATES = 2**15
"""The largest number of candidates of HNSW."""

_TEXT = 60_000
"""Characters of a text; Milvus takes 65,535 bytes."""

_HELD: dict[str, set[type]] = {
    "VARCHAR": {str}, "DOUBLE": {float}, "INT64": {int}, "BOOL": {bool},
}  # fmt: skip

_opened: Counter[str] = Counter()
"""How many connections there are to each file."""


class MilvusGallery(DatabaseGallery):
    """A collection of rows, and one for its state.

    A row has an "id", own keys as the "key", the "vector", and columns:
    one that was there at first as a field, others as JSON in "columns".
    Methods are as of `DatabaseGallery`. The address is that of a server, or
    the path of a file.
    """

    engine = "Milvus"
    most = 16384

    def __init__(self, uri: str, address: str, name: str) -> None:
        super().__init__(uri)
        owner, extra = "An index in Milvus", "milvus"
        self._library = import_extra(owner, "pymilvus", extra)
        self._is_file = "://" not in address
        self._address = address
        if self._is_file:
            import_extra(owner, "milvus_lite", extra)
            self._address = os.path.abspath(address)
        self._name, self._notes = name, f"{name}__keras_dml"
        self._loaded: set[str] = set()
        # Types of the columns that have fields of their own.
        self._fields: dict[str, str] = {}

    def exists(self) -> bool:
        # A file that is not there is not to be made.
        if self._is_file and not os.path.exists(self._address):
            return False
        return any(map(self._has, (self._name, self._notes)))

    def create(self) -> None:
        state, how = self.state, self.kind
        types = self._library.DataType
        text = {"max_length": 65535}
        notes = self._library.MilvusClient.create_schema()
        notes.add_field("part", types.INT64, is_primary=True)
        # A collection has a vector.
        notes.add_field("vector", types.FLOAT_VECTOR, dim=2)
        notes.add_field("text", types.VARCHAR, **text)
        self._make(self._notes, notes, "FLAT", "L2", {})
        rows = self._library.MilvusClient.create_schema()
        if state.keys == "str":
            rows.add_field("key", types.VARCHAR, is_primary=True, **text)
        elif state.keys == "int":
            rows.add_field("key", types.INT64, is_primary=True)
        rows.add_field("id", types.INT64, is_primary=state.keys is None)
        rows.add_field("vector", types.FLOAT_VECTOR, dim=state.dim)
        rows.add_field("columns", types.JSON)
        for name, held in state.types.items():
            # Fields are filtered faster than JSON.
            kind = _field_type(held)
            if kind and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
                more = text if kind == "VARCHAR" else {}
                rows.add_field(f"c_{name}", types[kind], nullable=True, **more)
        code, options = "FLAT", {}
        if how.links:
            code, options = "HNSW", {"M": how.links, "efConstruction": 100}
        elif how.lists:
            code, options = f"IVF_{how.code.upper()}", {"nlist": how.lists}
            if how.parts:
                options["m"] = how.parts
        metric = "L2" if self.metric.is_distance else "IP"
        self._make(self._name, rows, code, metric, options)
        self._look()
        self.write_state(state)

    def drop(self) -> None:
        # From here on it is one that was begun, which may be made anew.
        self._write_text("")
        for name in (self._name, self._notes):
            if self._has(name):
                self._call("drop_collection", name)

    def read_state(self) -> str | None:
        if not self._has(self._notes):
            return None
        self._load(self._notes)
        found = self._query(self._notes, "part >= 0", ["part", "text"])
        texts = [x["text"] for x in sorted(found, key=lambda x: x["part"])]
        count, _, first = (texts or ["1 "])[0].partition(" ")
        if not self._fields and self._has(self._name):
            self._look()
        return "".join([first, *texts[1 : int(count)]])

    def write_state(self, state: State) -> None:
        for name, types in state.types.items():
            kind = self._fields.get(name)
            if kind and _field_type(types | _HELD[kind]) != kind:
                names = " and ".join(sorted(x.__name__ for x in types))
                raise ValueError(
                    "`columns` of an Index in Milvus must keep the type that "
                    f"they were pushed with. Received: {names} in the column "
                    f"{name!r} of type {kind}. Use an index in a folder to "
                    "change types."
                )
        self._write_text(state.to_json())

    def place(self, name: str) -> str:
        if name in self._fields:
            return f"c_{name}"
        return f"columns[{self.literal(name)}]"

    def has_value(self, name: str) -> str:
        place = self.place(name)
        is_field = name in self._fields
        return f"{place} is not null" if is_field else f"exists {place}"

    def one_of(self, place: str, values: Sequence[Any]) -> str:
        listed = list(map(self.literal, values))
        if place.startswith("columns["):
            return f"({' or '.join(f'{place} == {x}' for x in listed)})"
        return f"{place} in [{', '.join(listed)}]"

    def literal(self, value: Any) -> str:
        if not isinstance(value, str):
            return repr(value).lower()
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        for plain, letter in ("\n", "n"), ("\r", "r"), ("\t", "t"):
            escaped = escaped.replace(plain, f"\\{letter}")
        return f'"{escaped}"'

    def count(self, where: str = "") -> int:
        found = self._query(self._name, where, ["count(*)"], limit=None)
        return int(found[0]["count(*)"])

    def append(self, block: Block) -> None:
        # The client repeats calls: an insert could come twice.
        self.put(block)

    def put(self, block: Block) -> None:
        rows = []
        for i, row_id in enumerate(block.ids.tolist()):
            values = {name: x[i] for name, x in block.columns.items()}
            size = len(json.dumps(values).encode())
            if size > _TEXT:
                raise ValueError(
                    "`columns` of an Index in Milvus must take up at most "
                    f"{_TEXT:,} bytes per row. Received: {size:,} bytes in row "
                    f"{row_id}. Use LanceDB or an index in a folder, which "
                    "have no such limit."
                )
            row: dict[str, Any] = {"id": row_id, "vector": block.vectors[i]}
            row |= {f"c_{x}": values.pop(x, None) for x in self._fields}
            row["columns"] = {k: x for k, x in values.items() if x is not None}
            if block.keys is not None:
                row["key"] = block.keys[i]
            rows.append(row)
        for part in blocks(len(rows), max(1, _SENT // (4 * self.dim))):
            self._call("upsert", self._name, rows[part])

    def delete(self, where: str) -> None:
        self._call("delete", self._name, filter=where)

    def read(
        self, where: str, columns: bool = True, vectors: bool = False
    ) -> Block:
        fields = ["id", *(["key"] if self.has_keys else [])]
        fields += ["vector"] if vectors else []
        if columns:
            fields += ["columns", *(f"c_{x}" for x in self._fields)]
        found = self._query(self._name, where, fields)
        x = np.array([row.get("vector", []) for row in found], np.float32)
        return Block(
            np.array([row["id"] for row in found], np.int64),
            x.reshape(len(found), self.dim if vectors else 0),
            {
                name: [row[f"c_{name}"] for row in found]
                if name in self._fields
                else [row["columns"].get(name) for row in found]
                for name in (self.types if columns else ())
            },
            [row["key"] for row in found] if self.has_keys else None,
        )

    def search(
        self, queries: FloatArray, k: int, where: str, share: float
    ) -> list[tuple[Rows, FloatArray]]:
        kind, how = self.kind, {}
        if kind.lists:
            how = {"nprobe": kind.effort(share, kind.lists)}
        elif kind.links:
            how = {"ef": max(k, kind.effort(share, _CANDIDATES))}
        return self._found(queries, k, where, how)

    def within(
        self, query: FloatArray, bound: float, where: str
    ) -> tuple[Rows, FloatArray]:
        if not self.is_exact:
            raise ValueError(
                "`factory` of an Index in Milvus must be 'Flat' to find all "
                f"rows that reach a threshold. Received: {self.factory!r}. Use "
                "LanceDB or an index in a folder, which support this with any "
                "factory."
            )
        how = {"radius": -bound if self.metric.is_distance else bound}
        (found,) = self._found(query[None], self.most, where, how)
        if len(found[0]) == self.most:
            raise ValueError(
                "`threshold` of an Index in Milvus must be reached by fewer "
                f"than {self.most:,} rows. Received: a threshold that more "
                "rows reach. Use a higher one, or LanceDB or an index in a "
                "folder, which have no such limit."
            )
        return found

    def build(self) -> None:
        self._call("flush", self._name)

    def close(self) -> None:
        client = self.__dict__.pop("_client", None)
        if client is None:
            return
        client.close()
        self._loaded.clear()
        _opened[self._address] -= 1
        if self._is_file and not _opened[self._address]:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self._address)

    @cached_property
    def _client(self) -> Any:
        if self._is_file:
            os.makedirs(os.path.dirname(self._address), exist_ok=True)
            logging.getLogger("grpc._server").addFilter(_is_of_users)
        client = self._library.MilvusClient(
            self._address,
            token=os.environ.get("MILVUS_TOKEN", ""),
            timeout=CONNECT,
        )
        _opened[self._address] += 1
        return client

    def _call(self, what: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the client; OSError where it fails."""
        log = logging.getLogger("pymilvus")
        level = log.level
        # It would print what the error says, and a traceback.
        log.setLevel(logging.CRITICAL + 1)
        try:
            method = getattr(self._client, what)
            return method(*arguments, timeout=_LONG.get(what, CALL), **options)
        except Exception as error:
            message = first_line(getattr(error, "message", error))
            hint = " Only one process at a time can open a file."
            raise OSError(
                f"{self.store} cannot be reached, read or written. Milvus "
                f"says: {message}.{hint if self._is_file else ''}"
            ) from error
        finally:
            log.setLevel(level)

    def _has(self, name: str) -> bool:
        return bool(self._call("has_collection", name))

    def _load(self, name: str) -> None:
        """Has a collection loaded, without which it is not searched."""
        if name not in self._loaded:
            self._call("load_collection", name)
            self._loaded.add(name)

    def _look(self) -> None:
        """Loads the rows, and notes which columns have fields."""
        self._load(self._name)
        found = self._call("describe_collection", self._name)
        self._fields = {
            field["name"][2:]: field["type"].name
            for field in found["fields"]
            if field["name"].startswith("c_")
        }

    def _make(
        self, name: str, schema: Any, kind: str, metric: str, built: Any
    ) -> None:
        index = self._library.MilvusClient.prepare_index_params()
        # Servers take them one by one, Milvus Lite as one that is "params".
        both = {**built, "params": built}
        index.add_index(
            "vector", index_type=kind, metric_type=metric, params=both
        )
        if name == self._name and "key" in {x.name for x in schema.fields}:
            # Rows are read by their ids; keys are primary.
            index.add_index("id", index_type="INVERTED")
        # A reader sees what was written before it reads.
        options = {"index_params": index, "consistency_level": "Strong"}
        self._call("create_collection", name, schema=schema, **options)

    def _write_text(self, text: str) -> None:
        parts = [text[part] for part in blocks(len(text), _TEXT)] or [""]
        parts[0] = f"{len(parts)} {parts[0]}"
        rows = [
            {"part": i, "vector": [0.0, 0.0], "text": part}
            for i, part in enumerate(parts)
        ]
        self._call("upsert", self._notes, rows)

    def _query(
        self, name: str, where: str, fields: list[str], limit: int | None = most
    ) -> list[dict[str, Any]]:
        options = {} if limit is None else {"limit": limit}
        found = self._call(
            "query", name, filter=where, output_fields=fields, **options
        )
        return list(found)

    def _found(
        self, queries: FloatArray, k: int, where: str, how: dict[str, Any]
    ) -> list[tuple[Rows, FloatArray]]:
        found = self._call(
            "search",
            self._name,
            data=queries,
            limit=int(k),
            filter=where,
            output_fields=["id"],
            search_params={"params": how},
        )
        sign = -1.0 if self.metric.is_distance else 1.0
        return [
            (
                np.array([hit["entity"]["id"] for hit in hits], np.int64),
                sign * np.array([hit["distance"] for hit in hits]),
            )
            for hits in found
        ]


def _field_type(types: set[type]) -> str:
    """The type of a field for values of some types; empty for none."""
    held = type_of(types)
    return next((x for x, kinds in _HELD.items() if held in kinds), "")


def _is_of_users(record: logging.LogRecord) -> bool:
    """Whether a log line of a server says what a user can do something about.

    The server of a file has not all methods of a cluster. Clients know, and
    it prints a traceback for each.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, NotImplementedError)
