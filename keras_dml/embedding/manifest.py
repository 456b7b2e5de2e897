"""Manifest: the content of a folder of embeddings, and the run that made it."""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.documents import Document, checksum
from keras_dml.utils.types import Precision

FORMAT = "keras_dml.embedding"

MANIFEST = "_manifest.json"

LabelKind: TypeAlias = Literal["none", "one", "several"]
"""Number of labels per example; "none" if they are not known."""

_Count: TypeAlias = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class BadExample:
    """An example that could not be read: row in the source, id and reason."""

    row: _Count
    id: str
    error: str


@dataclass(frozen=True)
class Run:
    """Everything that the embeddings of a run depend on.

    Attributes:
        model: The model that makes them; None if it is not known.
        examples: Number of examples in the source.
        fingerprint: Checksum of their ids, labels, names and columns.
        rows_per_shard: Number of examples of the source per shard; the last one
            may have fewer.
        dtype: Number format of the stored embeddings.
        dim: Dimension of the embeddings, D.
        labels: Number of labels per example.
        num_labels: Number of labels in total, C, if examples can have several;
            otherwise 0.
        columns: Names of further columns.
    """

    model: ModelIdentity | None
    examples: Annotated[int, Ge(1)]
    fingerprint: str
    rows_per_shard: Annotated[int, Ge(1)]
    dtype: Precision
    dim: Annotated[int, Ge(1), Le(2**18)]
    labels: LabelKind
    num_labels: _Count
    columns: tuple[str, ...]

    @functools.cached_property
    def id(self) -> str:
        """Identifies the run, on any machine."""
        plain = asdict(self)
        # Embeddings of the same model differ slightly between machines.
        if self.model is not None:
            del plain["model"]["test_embeddings"]
        return checksum(plain)

    @property
    def num_shards(self) -> int:
        """Number of shards for all examples."""
        return -(-self.examples // self.rows_per_shard)

    def difference(self, other: "Run") -> str:
        """How another run differs from this one; empty if it does not."""
        if self.model is None or other.model is None:
            if self.model is not other.model:
                given = "existing embeddings, not those of a model"
                made = "embeddings of a model, not existing ones"
                return given if other.model is None else made
        elif found := self.model.difference(other.model):
            return f"a model {found}"
        for name, what in _SAID.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{what}: {theirs!r}, not {mine!r}"
        return ""


_SAID = {
    "dim": "embeddings of a different dimension",
    "examples": "a different number of examples",
    "columns": "different columns",
    "labels": "different labels",
    "num_labels": "a different number of labels",
    "fingerprint": "different examples, ids or labels, by their fingerprint",
    "rows_per_shard": "different rows_per_shard",
    "dtype": "a different dtype",
}


@dataclass(frozen=True)
class ShardEntry:
    """A shard: a file with the embeddings of one part of the source.

    Attributes:
        number: Number of the shard, from 0.
        first_row: The first row of its part of the source.
        examples: Number of rows in this part.
        rows: Number of rows that could be embedded.
        bytes: Size of the file.
        digest: Checksum of its content.
    """

    number: _Count
    first_row: _Count
    examples: _Count
    rows: _Count
    bytes: _Count
    digest: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return shard_name(self.number)


def shard_name(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05d}.parquet"


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of embeddings.

    Attributes:
        run: The run that made them.
        shards: The shards, in the order of the source; none if the run is
            unfinished.
        names: Names of classes by label.
        bad: Examples that could not be read.
        batch_size: Number of examples embedded at a time.
        images_per_second: Speed of the call that completed the run, including
            start-up.
        versions: Versions of the packages used, by name.
    """

    run: Run
    shards: tuple[ShardEntry, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    bad: tuple[BadExample, ...] = ()
    batch_size: _Count = 0
    images_per_second: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The manifest as JSON with a checksum."""
        return _DOCUMENT.write(self, run_id=self.run.id)

    @classmethod
    def from_json(cls, text: bytes, where: str) -> "Manifest":
        """Reads the result of `to_json` in the file that messages call `where`.

        Raises:
            ValueError: If it is not a manifest, is damaged, or was written by a
                later version.
        """
        try:
            manifest = _DOCUMENT.read(text)
            if manifest.shards:
                manifest.check_whole()
        except ValueError as error:
            way = ""
            if getattr(error, "version", None) is not None:
                way = " Use the version of keras_dml that wrote it."
            raise ValueError(
                f"{where} must be a manifest of embeddings written by "
                f"keras_dml. Received: {error}.{way}"
            ) from None
        return manifest

    def check_whole(self) -> None:
        """Raises ValueError unless its shards are all those of the run."""
        step, run = self.run.rows_per_shard, self.run
        expected = [
            (number, number * step, min(step, run.examples - number * step))
            for number in range(run.num_shards)
        ]
        found = [(x.number, x.first_row, x.examples) for x in self.shards]
        rows = sum(entry.rows for entry in self.shards)
        if found != expected or rows + len(self.bad) != run.examples:
            raise ValueError(
                f"{len(self.shards)} shards with {rows} rows and "
                f"{len(self.bad)} unreadable ones for {run.examples} examples"
            )


_DOCUMENT = Document(Manifest, FORMAT)
