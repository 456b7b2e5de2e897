"""The work for a shard: embedding its examples and writing its file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.data.loading import Loader, parallel, raise_unreadable
from keras_dml.embedding.engines import KERAS, Engine, predict_function
from keras_dml.embedding.in_memory import embedded
from keras_dml.embedding.manifest import BadExample, Run, shard_name
from keras_dml.embedding.shard_file import ShardHead, to_parquet
from keras_dml.embedding.source import Part
from keras_dml.embedding.storage import Storage, on_this_machine, original
from keras_dml.embedding.workers import Work
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.models import read_model
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray

_LARGEST = float(np.finfo(np.float16).max)
"""The largest number that float16 holds, 65504."""


@dataclass(frozen=True)
class EmbedShards(Work[Part, ShardHead]):
    """Embeds the parts of a source, each into a shard.

    Attributes:
        model: The model; None if the inputs are embeddings. When pickled, it
            becomes the bytes of its file.
        run: The run of the shards.
        folder: The folder to write to.
        batch_size: Number of examples to embed at a time.
        engine: What embeds them.
    """

    model: keras.Model | bytes | None
    run: Run
    folder: str
    batch_size: int
    engine: Engine = KERAS

    def start(self) -> Callable[[Part], ShardHead]:
        model = self.model
        if isinstance(model, bytes):
            model = _from_bytes(model, self.run.model)
        return _Writer(self, model, Storage(self.folder))

    def called(self, task: Part) -> str:
        return f"shard {task.number}"

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        if isinstance(self.model, keras.Model):
            state["model"] = _to_bytes(self.model)
        return state


class _Writer:
    """Embeds and writes one part after another."""

    def __init__(
        self, work: EmbedShards, model: keras.Model | None, storage: Storage
    ) -> None:
        self._run = work.run
        self._batch_size = work.batch_size
        self._model = model
        self._predict = model and predict_function(model, work.engine)
        self._storage = storage

    def __call__(self, part: Part) -> ShardHead:
        embeddings, bad = self._embed(part)
        gone = {x.row - part.first_row for x in bad}
        kept = [row for row in range(len(part.examples)) if row not in gone]
        _check_range(embeddings, self._run.dtype == "float16", part, kept)
        head = ShardHead(
            run=self._run.id,
            number=part.number,
            first_row=part.first_row,
            examples=len(part.examples),
            rows=len(kept),
            bad=bad,
        )
        table = part.table.take(np.array(kept, np.int64))
        head, content = to_parquet(table, head, embeddings, self._run.dtype)
        name = shard_name(part.number)
        try:
            self._storage.write(name, content)
        except OSError as error:
            raise _cannot_write(error, name, self._storage) from error
        return head

    def _embed(self, part: Part) -> tuple[FloatArray, tuple[BadExample, ...]]:
        """Embeddings of the readable examples, (n, D), and the unreadable."""
        with on_this_machine(part.examples) as (examples, missing):
            embeddings, bad = self._readable(examples, missing)
            said = {
                row: original(examples, part.examples, row, why)
                for row, why in sorted(bad.items())
            }
        return embeddings, tuple(
            BadExample(part.first_row + row, part.name_of(row), why)
            for row, why in said.items()
        )

    def _readable(
        self, examples: Examples, bad: dict[int, str]
    ) -> tuple[FloatArray, dict[int, str]]:
        """Embeddings of the readable examples, and errors of others by row."""
        kept = [row for row in range(len(examples)) if row not in bad]
        if not kept:
            return np.empty((0, self._run.dim), np.float32), bad
        given = examples.select(kept) if bad else examples
        try:
            return self._all(given), bad
        # Of any kind: those of graphs that read files are TensorFlow's.
        except Exception:
            found = _unreadable(given, self._model)
            if not found:
                raise
        more = {kept[row]: why for row, why in found.items()}
        return self._readable(examples, {**bad, **more})

    def _all(self, examples: Any) -> FloatArray:
        if self._model is None:
            return np.asarray(examples.inputs(...), np.float32)
        return embedded(
            self._model,
            examples,
            "examples",
            "embed_shards",
            self._batch_size,
            progress=False,
            padded=True,
            predict=self._predict,
        ).embeddings


def _unreadable(
    examples: Examples, model: keras.Model | None
) -> dict[int, str]:
    """Error messages, by row, of the examples that cannot be read."""
    if not isinstance(examples, ImageSet):
        return _one_by_one(examples)
    if examples.paths is None or model is None:
        return {}
    found = {}
    for row in _undecoded(examples, examples.view_for(model)):
        box = None if examples.boxes is None else examples.boxes[row]
        try:
            raise_unreadable(os.fsencode(examples.paths[row]), box)
        except (ValueError, OSError) as error:
            found[row] = str(error)
    return found


def _undecoded(images: ImageSet, view: Any) -> list[int]:
    """Rows of files that cannot be decoded."""
    loader = Loader(images)

    def load(row: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([view.cut(loader.image(row))]):
            return tf.identity(row)

    decoded = parallel(tf.data.Dataset.range(len(images)), load)
    rows = [int(x) for x in decoded.ignore_errors().as_numpy_iterator()]
    return np.setdiff1d(np.arange(len(images)), rows).tolist()


def _one_by_one(examples: Examples) -> dict[int, str]:
    found = {}
    for row in range(len(examples)):
        try:
            examples.inputs([row])
        except (ValueError, OSError) as error:
            found[row] = str(error)
    return found


def _check_range(
    embeddings: FloatArray, narrow: bool, part: Part, kept: list[int]
) -> None:
    """Raises ValueError unless the shards can represent all embeddings.

    Args:
        embeddings: (n, D), of the `kept` rows of the part.
        narrow: Whether they are stored as float16.
        part: The part.
        kept: Its rows, n.
    """
    limit = _LARGEST if narrow else np.inf
    # NaN does not compare as less or equal.
    fits = (np.abs(embeddings) <= limit) & np.isfinite(embeddings)
    if fits.all():
        return
    place, column = np.argwhere(~fits)[0]
    value, row = embeddings[place, column], kept[place]
    which = f"row {part.first_row + row}, {part.name_of(row)!r}, has {value}"
    if np.isfinite(value):
        raise ValueError(
            "`dtype` of embed_shards must represent all embeddings, but "
            f"float16 ends at {_LARGEST:.0f}. Received: {which}. Use "
            'dtype="float32".'
        )
    raise ValueError(
        "`model` of embed_shards must return finite embeddings. Received: "
        f"{which}. Such embeddings usually mean that training diverged. Lower "
        "the learning rate or clip gradients."
    )


def _cannot_write(error: OSError, name: str, storage: Storage) -> OSError:
    return type(error)(
        error.errno,
        f"The shard {name} cannot be written to {storage.name!r}: "
        f"{error.strerror or error}. Finished shards are kept. Free some "
        "space or fix the problem, and embed again with the same arguments "
        "to continue",
    )


def _to_bytes(model: keras.Model) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def _from_bytes(content: bytes, identity: ModelIdentity | None) -> keras.Model:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        Path(path).write_bytes(content)
        try:
            model = read_model(path)
        except ValueError as error:
            raise ValueError(
                "`model` of embed_shards must be one that workers can load: "
                "without Lambda layers, and with all classes registered by "
                "modules that the workers import. Received: "
                f"{error} Use workers=1, or register the class in a package."
            ) from error
    difference = identity and identity.difference(ModelIdentity.of(model))
    if difference:
        raise ValueError(
            "A worker must have the same model as the process that started "
            f"it. Received: a model {difference}. Install the same versions "
            "of keras_dml, keras and tensorflow on all machines."
        )
    return model
