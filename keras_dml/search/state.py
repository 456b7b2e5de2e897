"""State: what a table of a database says of the index that it holds."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.approximate import EFFORT
from keras_dml.search.engine import EXACT
from keras_dml.search.faiss_files import IndexFileError
from keras_dml.search.metrics import MetricName
from keras_dml.utils.documents import Document, OtherDocument

TYPES: dict[str, type] = {x.__name__: x for x in (str, int, float, bool, list)}

_FACTORY = re.compile(
    rf"(?P<flat>{EXACT})|HNSW(?P<links>\d+)"
    r"|IVF(?P<lists>\d+),((?P<code>Flat|SQ8|RaBitQ)|PQ(?P<parts>\d+)(np)?)"
)


@dataclass(frozen=True)
class Kind:
    """A kind of index that a database builds.

    Attributes:
        factory: Its factory string.
        parameters: How thoroughly it searches, as of `Index`.
        lists: Number of lists of an inverted file; 0 for others.
        links: Number of links of an HNSW graph; 0 for others.
        code: How an inverted file keeps vectors: "Flat", "SQ8", "RaBitQ" or
            "PQ".
        parts: Number of parts of a product quantizer.
    """

    factory: str
    parameters: str
    lists: int
    links: int
    code: str
    parts: int

    @classmethod
    def of(cls, factory: str, parameters: str | None, engine: str) -> "Kind":
        """The kind that a factory string names.

        Raises:
            ValueError: If `engine` has no such kind.
        """
        match = _FACTORY.fullmatch(str(factory))
        if not match:
            raise ValueError(
                f"`factory` of an Index in {engine} must be 'Flat', "
                "'IVF1024,Flat', 'IVF1024,SQ8', 'IVF1024,RaBitQ', "
                "'IVF1024,PQ16' or 'HNSW32', and a `precision` is one of the "
                f"kinds with lists. Received: factory={factory!r}. Use an "
                "index in a folder for other kinds."
            )
        lists, links = int(match["lists"] or 0), int(match["links"] or 0)
        name = "nprobe" if lists else "efSearch" if links else ""
        text = parameters or ""
        if text and not re.fullmatch(rf"{name or '-'}=[1-9]\d{{0,6}}", text):
            raise ValueError(
                f"`parameters` of an Index in {engine} must be "
                + (f"'{name}=N'" if name else "none for 'Flat'")
                + f". Received: parameters={parameters!r}."
            )
        if name and not text:
            text = f"{name}={max(1, round(lists**0.5)) if lists else 64}"
        code = match["code"] or ("PQ" if match["parts"] else "")
        parts = int(match["parts"] or 0)
        return cls(factory, text, lists, links, code, parts)

    def effort(self, share: float, most: int) -> int:
        """Lists or candidates of a search among a share of the rows."""
        usual = int(self.parameters.partition("=")[2])
        wanted = usual * EFFORT / share if share < 1 else usual
        return min(most, math.ceil(wanted))


def type_of(types: set[type]) -> type | None:
    """The type that a database has for values of some types, or None."""
    numbers = (float, int, bool)
    if types and types <= set(numbers):
        return next(x for x in numbers if x in types)
    return next(iter(types)) if len(types) == 1 else None


@dataclass(frozen=True)
class State:
    """What a table says of the index that it holds; see `Index`.

    Attributes:
        keys: Type of the keys; None if rows have only ids.
        source: A digest of the shards that were pushed, until rows change.
        is_whole: Whether all rows were written.
        next_id: The id of the next row that is added.
        columns: Types of the values by column, without that of None.
        model: Which model made the embeddings, if it is known.
    """

    dim: Annotated[int, Ge(1), Le(2**18)]
    metric: MetricName
    factory: str = ""
    parameters: str = ""
    keys: Literal["str", "int"] | None = None
    source: str = ""
    is_whole: bool = False
    next_id: Annotated[int, Ge(0), Le(2**62)] = 0
    columns: dict[
        str, tuple[Literal["str", "int", "float", "bool", "list"], ...]
    ] = field(default_factory=dict)
    threshold: AnyThreshold | None = None
    model: ModelIdentity | None = None

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values of each column, without that of None."""
        return {
            name: {TYPES[x] for x in names}
            for name, names in self.columns.items()
        }

    def with_types(self, types: Mapping[str, set[type]]) -> "State":
        """The state of a table whose columns have further types."""
        columns: dict[str, Any] = dict(self.columns)
        for name, held in types.items():
            names = {x.__name__ for x in held}.union(columns.get(name, ()))
            columns[name] = tuple(sorted(names))
        return replace(self, columns=columns)

    def is_like(self, other: "State") -> bool:
        """Whether the rows of two tables are the same, and of one kind."""
        names = "dim", "metric", "factory", "parameters", "keys", "source"
        return all(getattr(self, x) == getattr(other, x) for x in names)

    def to_json(self) -> str:
        """As text."""
        return _DOCUMENT.write(self)

    @classmethod
    def from_json(cls, text: str, where: str) -> "State":
        """What `to_json` wrote; IndexFileError if it is not."""
        try:
            return _DOCUMENT.read(text)
        except OtherDocument as error:
            raise IndexFileError(
                f"{where} must hold an index of format version "
                f"{_DOCUMENT.versions[0]}. Received: {error}. Use the version "
                "of keras_dml that wrote it, or push it again with "
                "overwrite=True."
            ) from None
        except ValueError as error:
            raise IndexFileError(
                f"The description of the index in {where} is damaged: "
                f"{error}. Push it again with overwrite=True."
            ) from None


_DOCUMENT = Document(State, "keras_dml.search.database")
