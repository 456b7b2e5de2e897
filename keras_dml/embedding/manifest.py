"""Manifest: what a folder of embeddings holds, and which run made it."""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.documents import Document, checksum

FORMAT = "keras_dml.embedding"

RUN, MANIFEST = "_run.json", "_manifest.json"

Precision: TypeAlias = Literal["float32", "float16"]
"""In which numbers embeddings are stored."""

LabelKind: TypeAlias = Literal["none", "one", "several"]
"""How many labels each example has, if they are known."""

_Count: TypeAlias = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class BadExample:
    """An example that could not be read: its row in the source, id, why."""

    row: _Count
    id: str
    error: str


@dataclass(frozen=True)
class Run:
    """What embeddings are made of, all that they depend on.

    Attributes:
        model: Which model makes them; None if that is not known.
        examples: How many there are in the source.
        fingerprint: Checksum of their ids, labels, names and columns.
        rows_per_shard: Examples of the source in a shard; the last one may
            have fewer.
        dtype: In which numbers embeddings are stored.
        dim: Dimensions of an embedding, D.
        labels: How many labels each example has.
        num_labels: With several each, how many there are, C; else 0.
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
        """What tells the run from others, on whatever machine."""
        plain = asdict(self)
        # The same model differs a little between machines.
        if self.model is not None:
            del plain["model"]["test_embeddings"]
        return checksum(plain)

    @property
    def num_shards(self) -> int:
        """How many shards all examples take."""
        return -(-self.examples // self.rows_per_shard)

    def difference(self, other: "Run") -> str:
        """In what another run differs; empty if it is this one."""
        if self.model is None or other.model is None:
            if self.model is not other.model:
                return "embeddings that a model makes, and given ones"
        elif found := self.model.difference(other.model):
            return f"a model {found}"
        for name, what in _SAID.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{what}: {theirs!r}, not {mine!r}"
        return ""


_SAID = {
    "dim": "embeddings of another dimension",
    "examples": "another number of examples",
    "columns": "other columns",
    "labels": "other labels",
    "num_labels": "another number of labels",
    "fingerprint": "other examples, ids or labels, by their fingerprint",
    "rows_per_shard": "other rows_per_shard",
    "dtype": "another dtype",
}


@dataclass(frozen=True)
class ShardEntry:
    """A shard: a file with the rows of a part of the source.

    Attributes:
        number: It, from 0.
        first_row: The first row of its part of the source.
        examples: How many rows this part has.
        rows: How many of them could be embedded.
        bytes: Size of the file.
        digest: Checksum of what is in it.
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
    """What a folder of embeddings holds.

    Attributes:
        run: What they are made of.
        shards: Its files, in the order of the source.
        names: Names of classes by label.
        bad: Examples that could not be read.
        batch_size: Examples embedded at a time.
        images_per_second: How fast that was, with start-up, in the call
            that wrote this.
        versions: Of what made them, by name.
    """

    run: Run
    shards: tuple[ShardEntry, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    bad: tuple[BadExample, ...] = ()
    batch_size: _Count = 0
    images_per_second: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """As the text of a file, with a checksum."""
        return _DOCUMENT.write(self, run_id=self.run.id)

    @classmethod
    def from_json(cls, text: bytes, where: str) -> "Manifest":
        """What `to_json` wrote.

        Args:
            text: The content of a file.
            where: What messages call the file.

        Raises:
            ValueError: If it is something else, damaged, or of a later
                version.
        """
        try:
            manifest = _DOCUMENT.read(text)
            if manifest.shards:
                manifest.check_whole()
        except ValueError as error:
            way = ""
            if getattr(error, "version", None) is not None:
                way = " Read it with the keras_dml that wrote it."
            raise ValueError(
                f"{where} must be what keras_dml wrote of embeddings. "
                f"Received: {error}.{way}"
            ) from None
        return manifest

    def check_whole(self) -> None:
        """Raises ValueError unless its shards are those of the run."""
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
                f"{len(self.bad)} bad ones for {run.examples} examples"
            )


_DOCUMENT = Document(Manifest, FORMAT)
