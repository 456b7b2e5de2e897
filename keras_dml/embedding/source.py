"""Source: examples with ids and columns, divided into one part per shard."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128

from keras_dml.data import Examples, ImageSet
from keras_dml.data.contents import contents
from keras_dml.embedding.manifest import LabelKind
from keras_dml.embedding.shard_file import ID, LABEL, NAME, RESERVED, ROW
from keras_dml.embedding.storage import check_protocols, is_url

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_SOURCE = "source"
"""The name of the column for ids that repeat, as in an Index."""

_SAMPLED = 64
"""Number of examples of an array that are hashed to identify it."""


@dataclass(frozen=True)
class Part:
    """The examples of one shard.

    Attributes:
        number: Number of the shard, from 0.
        first_row: Row of the first example in the source.
        examples: The n examples.
        table: All columns but the embeddings, n rows.
    """

    number: int
    first_row: int
    examples: Examples
    table: "pa.Table"

    def name_of(self, row: int) -> str:
        """The id of a row of this part."""
        found: str = self.table[ID][row].as_py()
        return found


class Source:
    """Examples to embed, with their ids and further columns.

    Args:
        examples: N examples, at least one.
        columns: Further columns by name, N values each. Sets of files also have
            "path", and "box" if they have boxes.
        whole: Whether the fingerprint includes the full contents of arrays.

    Attributes:
        ids: Unique ids of the examples: those of the set or, for files, their
            paths relative to a common folder. If there are neither, or if they
            repeat, these are row numbers.
        columns: The further columns, including the original ids as "source" if
            they repeat.

    Raises:
        ValueError: If there are no examples, or a column has a reserved name or
            the wrong length.
        ImportError: If a package for the URLs of examples is missing.
    """

    def __init__(
        self,
        examples: Examples,
        columns: Mapping[str, Sequence[Any]] | None,
        whole: bool = False,
    ) -> None:
        if not len(examples):
            raise ValueError(
                "`examples` of embed_shards must not be empty. Received: "
                f"{examples!r}."
            )
        check_protocols(examples)
        self.examples = examples = _from_anywhere(examples)
        self._whole = whole or isinstance(examples, ImageSet)
        own = _own_columns(examples)
        self.ids = _ids(examples)
        repeated = len(self.ids) - len(set(self.ids))
        if repeated:
            logger.info(
                "%d of %d ids repeat those of earlier rows. Row numbers are "
                "used as ids instead, and the column %s holds the original "
                "ids.",
                repeated,
                len(examples),
                _SOURCE,
            )
            own[_SOURCE] = self.ids
            self.ids = list(map(str, range(len(examples))))
        _check_columns(own, columns or {}, len(self))
        given = {name: _as_list(x) for name, x in (columns or {}).items()}
        self.columns = {**own, **given}

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def labels(self) -> LabelKind:
        """Number of labels per example."""
        if self.examples.labels is None:
            return "none"
        return "several" if self.examples.has_label_sets else "one"

    @property
    def num_labels(self) -> int:
        """Number of labels in total if examples can have several; else 0."""
        labels = self.examples.labels
        return 0 if labels is None or labels.ndim == 1 else labels.shape[1]

    @cached_property
    def table(self) -> "pa.Table":
        """All columns of the shards but the embeddings.

        Raises:
            ValueError: If a column has mixed types.
        """
        import pyarrow as pa

        examples, labels = self.examples, self.examples.labels
        columns = {
            ID: pa.array(self.ids, pa.string()),
            ROW: pa.array(np.arange(len(self), dtype=np.int64)),
        }
        if labels is None:
            columns[LABEL] = pa.nulls(len(self), pa.int64())
        elif examples.has_label_sets:
            several = [np.flatnonzero(x) for x in labels]
            columns[LABEL] = pa.array(several, pa.list_(pa.int64()))
        else:
            columns[LABEL] = pa.array(labels, pa.int64())
        if labels is not None and examples.names:
            names = map(examples.class_called, range(len(self)))
            columns[NAME] = pa.array(list(names), pa.string())
        for name, values in self.columns.items():
            try:
                columns[name] = pa.array(values)
            except pa.ArrowException as error:
                raise ValueError(
                    "`columns` of embed_shards must each have a single type. "
                    f"Received: {name!r}, which cannot be written: {error}."
                ) from None
        fields = [
            pa.field(name, array.type, nullable=name not in (ID, ROW))
            for name, array in columns.items()
        ]
        return pa.table(list(columns.values()), schema=pa.schema(fields))

    @cached_property
    def fingerprint(self) -> str:
        """Checksum that identifies the examples.

        It covers ids, labels, names and columns, except for paths, which change
        when a folder is moved. It also covers the contents of arrays; of those
        that are not in memory, only a sample.
        """
        hashed = xxh3_128()
        for part in self._told_apart():
            hashed.update(part)
        return hashed.hexdigest()

    def part(self, number: int, size: int) -> Part:
        """The examples of one shard, at most `size`."""
        start = number * size
        rows = np.arange(start, min(start + size, len(self)))
        # A slice of a table would be pickled with all rows.
        table = self.table.take(rows)
        return Part(number, start, self.examples.select(rows), table)

    def _told_apart(self) -> Iterator[bytes]:
        examples = self.examples
        if examples.labels is not None:
            yield f"{examples.labels.shape}{examples.labels.dtype}".encode()
            yield examples.labels.tobytes()
        yield repr(sorted(examples.names.items())).encode()
        yield from _as_bytes(self.ids)
        for name, values in self.columns.items():
            if name != "path":
                yield from _as_bytes(chain([name], values))
        if "path" not in self.columns and self._whole:
            yield from contents(examples)
        elif "path" not in self.columns:
            count = min(_SAMPLED, len(self))
            rows = np.linspace(0, len(self) - 1, count).astype(np.int64)
            yield from chain.from_iterable(map(self._contents, rows))

    def _contents(self, row: int) -> Iterator[bytes]:
        try:
            yield from contents(self.examples.select([row]))
        except (ValueError, OSError):  # A bad example; it is named later.
            yield b"bad"


def _as_bytes(values: Any) -> Iterator[bytes]:
    return (f"{value}\0".encode(errors="surrogateescape") for value in values)


def _from_anywhere(examples: Examples) -> Examples:
    """The examples with absolute paths, for processes in other folders."""
    if not isinstance(examples, ImageSet) or examples.paths is None:
        return examples
    paths = [x if is_url(x) else os.path.abspath(x) for x in examples.paths]
    about = examples.labels, examples.names, examples.ids, examples.boxes
    return ImageSet(paths, *about)


def _own_columns(examples: Examples) -> dict[str, list[Any]]:
    """The paths and boxes of image files, as columns."""
    if not isinstance(examples, ImageSet) or examples.paths is None:
        return {}
    columns: dict[str, list[Any]] = {"path": list(examples.paths)}
    if examples.boxes is not None:
        columns["box"] = examples.boxes.tolist()
    return columns


def _as_list(values: Any) -> list[Any]:
    """The values of a column as a list."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _check_columns(
    own: Mapping[str, Any], given: Mapping[str, Sequence[Any]], count: int
) -> None:
    taken = sorted(set(given) & {*RESERVED, *own})
    if taken:
        raise ValueError(
            "`columns` of embed_shards must not have the reserved names "
            f"{', '.join((*RESERVED, *own))}. Received: {taken[0]!r}. Rename "
            "it."
        )
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(
                "`columns` of embed_shards must have one value per example. "
                f"Received: {len(values)} of {name!r} for {count} examples."
            )


def _ids(examples: Examples) -> list[str]:
    if examples.ids is not None:
        return list(examples.ids)
    if isinstance(examples, ImageSet) and examples.paths is not None:
        return _below_common_folder(examples.paths)
    return list(map(str, range(len(examples))))


def _below_common_folder(paths: Sequence[str]) -> list[str]:
    """Paths relative to a common folder, with slashes; URLs are unchanged."""
    if any(is_url(path) for path in paths):
        return list(paths)
    try:
        root = os.path.commonpath({os.path.dirname(path) for path in paths})
    except ValueError:  # On several drives.
        return list(paths)
    start = len(root.rstrip(os.sep)) + 1
    return [path[start:].replace(os.sep, "/") for path in paths]
