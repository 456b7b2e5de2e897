"""MilvusTable: an index in Milvus, a cluster or embedded in a file."""

from typing import Any

from keras_dml.search import milvus_format
from keras_dml.search.gallery import Block
from keras_dml.search.kinds import Kind
from keras_dml.search.milvus_language import MilvusLanguage
from keras_dml.search.milvus_server import MilvusServer
from keras_dml.search.state import State
from keras_dml.search.table import Found, Table, Types
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks


class MilvusTable(MilvusLanguage, Table):
    """A collection of rows, and one for its state.

    A row has an "id", own keys as the "key", the "vector", and columns:
    one that was there at first as a field, others as JSON in "columns".
    Methods are as of `Table`.

    Args:
        uri: What messages call it.
        address: Of the server, or the path of a file.
        name: The name of the collection.
    """

    engine = "Milvus"
    most = 16384

    def __init__(self, uri: str, address: str, name: str) -> None:
        MilvusLanguage.__init__(self)
        Table.__init__(self, uri)
        self._server = MilvusServer(uri, address)
        self._name, self._notes = name, f"{name}__keras_dml"

    def exists(self) -> bool:
        if not self._server.may_exist():
            return False
        return any(map(self._has, (self._name, self._notes)))

    def create(self, state: State) -> None:
        notes = milvus_format.notes_schema(self._server.library)
        self._make(self._notes, notes, "FLAT", "L2", {})
        rows = milvus_format.rows_schema(self._server.library, state)
        metric = "L2" if state.metric == "euclidean" else "IP"
        kind = Kind.of(state.factory, state.parameters, self.engine)
        self._make(self._name, rows, *milvus_format.index_of(kind, metric))
        self._look()
        self.write_state(state)

    def drop(self) -> None:
        # From here on it is one that was begun, which may be made anew.
        self._write_text("")
        for name in (self._name, self._notes):
            if self._has(name):
                self._server.call("drop_collection", name)

    def read_state(self) -> str | None:
        if not self._has(self._notes):
            return None
        self._server.load(self._notes)
        found = self._query(self._notes, "part >= 0", ["part", "text"])
        texts = [x["text"] for x in sorted(found, key=lambda x: x["part"])]
        count, _, first = (texts or ["1 "])[0].partition(" ")
        if not self.fields and self._has(self._name):
            self._look()
        return "".join([first, *texts[1 : int(count)]])

    def write_state(self, state: State) -> None:
        milvus_format.check_types(self.fields, state.types)
        self._write_text(state.to_json())

    def count(self, where: str = "") -> int:
        found = self._query(self._name, where, ["count(*)"], limit=None)
        return int(found[0]["count(*)"])

    def append(self, block: Block) -> None:
        # The client repeats calls: an insert could come twice.
        self.put(block)

    def put(self, block: Block) -> None:
        rows = list(milvus_format.rows(block, self.fields))
        size = max(1, milvus_format.SENT // (4 * block.vectors.shape[1]))
        for part in blocks(len(rows), size):
            self._server.call("upsert", self._name, rows[part])

    def delete(self, where: str) -> None:
        self._server.call("delete", self._name, filter=where)

    def read(self, where: str, columns: Types, vectors: bool = False) -> Block:
        fields = ["id", *(["key"] if self.has_keys else [])]
        if columns:
            fields += ["columns", *(f"c_{x}" for x in self.fields)]
        fields += ["vector"] if vectors else []
        found = self._query(self._name, where, fields)
        return milvus_format.block(found, columns, self.fields, self.has_keys)

    def nearest(
        self, queries: FloatArray, k: int, where: str, kind: Kind, share: float
    ) -> list[Found]:
        how: dict[str, int] = {}
        if kind.lists:
            how = {"nprobe": kind.effort_for(share, kind.lists)}
        elif kind.links:
            how = {"ef": max(k, kind.effort_for(share, milvus_format.EF))}
        return self._search(queries, k, where, how)

    def within(
        self, query: FloatArray, bound: float, where: str, kind: Kind
    ) -> Found:
        if not kind.is_exact:
            raise ValueError(
                "`factory` of an Index in Milvus must be 'Flat' to find all "
                f"rows that reach a threshold. Received: {kind.factory!r}. Use "
                "LanceDB or an index in a folder, which support this with any "
                "factory."
            )
        how = {"radius": -bound if self.is_distance else bound}
        (found,) = self._search(query[None], self.most, where, how)
        if len(found[0]) == self.most:
            raise ValueError(
                "`threshold` of an Index in Milvus must be reached by fewer "
                f"than {self.most:,} rows. Received: a threshold that more "
                "rows reach. Use a higher one, or LanceDB or an index in a "
                "folder, which have no such limit."
            )
        return found

    def build(self, kind: Kind) -> None:
        self._server.call("flush", self._name)

    def close(self) -> None:
        self._server.close()

    def _has(self, name: str) -> bool:
        return bool(self._server.call("has_collection", name))

    def _look(self) -> None:
        """Loads the rows, and notes which columns have fields."""
        self._server.load(self._name)
        found = self._server.call("describe_collection", self._name)
        self.fields = {
            field["name"][2:]: field["type"].name
            for field in found["fields"]
            if field["name"].startswith("c_")
        }

    def _make(
        self, name: str, schema: Any, kind: str, metric: str, built: Any
    ) -> None:
        index = self._server.library.MilvusClient.prepare_index_params()
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
        self._server.call("create_collection", name, schema=schema, **options)

    def _write_text(self, text: str) -> None:
        size = milvus_format.CHUNK
        parts = [text[part] for part in blocks(len(text), size)] or [""]
        parts[0] = f"{len(parts)} {parts[0]}"
        rows = [
            {"part": i, "vector": [0.0, 0.0], "text": part}
            for i, part in enumerate(parts)
        ]
        self._server.call("upsert", self._notes, rows)

    def _query(
        self,
        name: str,
        where: str,
        fields: list[str],
        limit: int | None = most,
    ) -> list[dict[str, Any]]:
        options = {} if limit is None else {"limit": limit}
        found = self._server.call(
            "query", name, filter=where, output_fields=fields, **options
        )
        return list(found)

    def _search(
        self, queries: FloatArray, k: int, where: str, how: dict[str, Any]
    ) -> list[Found]:
        found = self._server.call(
            "search",
            self._name,
            data=queries,
            limit=int(k),
            filter=where,
            output_fields=["id", "vector"],
            search_params={"params": how},
        )
        sign = -1.0 if self.is_distance else 1.0
        return [milvus_format.found(x, sign, queries.shape[1]) for x in found]
