"""Manifest: what an index is and which files it has, checked when read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.metrics import COSINE, MetricName
from keras_dml.search.recall import Recall
from keras_dml.utils.documents import Document, OtherDocument

FORMAT, VERSIONS = "keras_dml.search", (3, 4)
"""Version 3 had neither keys nor another metric than cosine."""

VECTORS, ROWS, MODEL = PARTS = ("vectors.faiss", "rows.json", "model.keras")

MANIFEST = "index.json"

NAME = re.compile(
    "[0-9a-f]{16}-(" + "|".join(map(re.escape, (*PARTS, MANIFEST))) + ")"
)
"""Names of the files that saves write: a token, drawn anew, and the part."""


class IndexFileError(ValueError):
    """A folder that is not an index, or a damaged index."""


@dataclass(frozen=True)
class FileEntry:
    """A file of an index: its name in the folder, its size and checksum."""

    name: str
    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class Content:
    """What an index is, beside its vectors and rows; see `Index`.

    Attributes:
        rows: Number of rows, N.
        next_id: The id of the next row that is added.
        hidden: Ids of vectors that were to be removed, and could not be.
        model: Which model made the embeddings, if it is known.
        faiss: The version of faiss that wrote it.
        metric: What scores are.
    """

    dim: Annotated[int, Ge(1), Le(2**18)]
    rows: Annotated[int, Ge(0)]
    next_id: Annotated[int, Le(2**63 - 1)]
    hidden: tuple[int, ...]
    factory: str
    parameters: str
    recall: Recall | None
    threshold: AnyThreshold | None
    model: ModelIdentity | None
    faiss: str
    metric: MetricName = COSINE

    def check(self, has_model: bool) -> None:
        """Raises ValueError where types are right and values are not."""
        if self.rows + len(self.hidden) > self.next_id:
            raise ValueError(
                f"rows={self.rows} with {len(self.hidden)} hidden and "
                f"next_id={self.next_id}"
            )
        if self.model is None:
            if has_model:
                raise ValueError("it does not identify its model")
        elif [len(x) for x in self.model.test_embeddings] != [self.dim] * 2:
            raise ValueError("its model has embeddings of a different size")


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    Attributes:
        content: What the index is.
        files: Its files, by what they hold.
    """

    content: Content
    files: Mapping[str, FileEntry]

    @property
    def used(self) -> set[str]:
        """Names of the files that the index consists of."""
        return {entry.name for entry in self.files.values()}

    @property
    def version(self) -> str:
        """Tells versions apart: the token of the names of the files."""
        return self.files[VECTORS].name.partition("-")[0]

    def to_json(self) -> str:
        """As the text of a file, with a checksum."""
        return _DOCUMENT.write(self)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """What `to_json` wrote; ValueError if it is not, or is damaged."""
        try:
            manifest = _DOCUMENT.read(text)
        except OtherDocument as error:
            if error.version is None:
                raise IndexFileError(
                    "does not belong to a keras_dml index"
                ) from None
            raise IndexFileError(
                f"must be of format version {VERSIONS[0]} or {VERSIONS[1]}. "
                f"Received: {error}. Use the version of keras_dml that wrote "
                "it, or build the index again"
            ) from None
        manifest._check()
        return manifest

    def _check(self) -> None:
        """Raises ValueError where types are right and values are not."""
        for name in self.used:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name given by Index.save")
        if not {VECTORS, ROWS} <= set(self.files) <= set(PARTS):
            raise ValueError(f"its files are {sorted(self.files)}")
        if any(entry.bytes < 1 for entry in self.files.values()):
            raise ValueError("one of its files is empty")
        self.content.check(MODEL in self.files)


_DOCUMENT = Document(Manifest, FORMAT, VERSIONS)
