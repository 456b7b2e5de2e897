"""State: what a database says of an index beside its rows."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.manifest import IndexFileError
from keras_dml.search.metrics import MetricName
from keras_dml.utils.documents import Document, OtherDocument

TypeName = Literal["str", "int", "float", "bool", "list"]

TYPES: dict[str, type] = {x.__name__: x for x in (str, int, float, bool, list)}


@dataclass(frozen=True)
class State:
    """What an index in a database is; see `Index`.

    Attributes:
        dim: Dimensions of the vectors.
        metric: What scores are.
        factory: The kind of index.
        parameters: How thoroughly it searches.
        keys: Kind of the own keys; None if rows go by their ids.
        source: What it was written from, a digest.
        is_whole: Whether all rows were written.
        next_id: The id of the next row that is added.
        longest: Length of the longest vector, or more.
        columns: Types of the values by column, without that of None.
        threshold: As of `Index`.
        model: Which model made the embeddings, if it is known.
        version: Drawn anew for each change, so that a second writer shows.
    """

    dim: Annotated[int, Ge(1), Le(2**18)]
    metric: MetricName
    factory: str
    parameters: str
    keys: Literal["str", "int"] | None
    source: str
    is_whole: bool = False
    next_id: Annotated[int, Ge(0), Le(2**62)] = 0
    longest: Annotated[float, Ge(0)] = 0.0
    columns: dict[str, tuple[TypeName, ...]] = field(default_factory=dict)
    threshold: AnyThreshold | None = None
    model: ModelIdentity | None = None
    version: str = field(default_factory=lambda: secrets.token_hex(8))

    def changed(self, **changes: Any) -> "State":
        """Another state, by another version."""
        return replace(self, version=secrets.token_hex(8), **changes)

    @property
    def key_type(self) -> type | None:
        """Type of the keys, if rows have keys."""
        return None if self.keys is None else TYPES[self.keys]

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values of each column, without that of None."""
        return {
            name: {TYPES[x] for x in names}
            for name, names in self.columns.items()
        }

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
