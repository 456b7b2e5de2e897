"""An index to its folder and back."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.evaluation.verification import Threshold
from keras_dml.search import store
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import Engine
from keras_dml.search.identity import ModelIdentity
from keras_dml.search.indexed_rows import IndexedRows
from keras_dml.search.memory import Memory
from keras_dml.search.recall import Recall
from keras_dml.search.rows import RowTable
from keras_dml.utils.types import Config

VECTORS, ROWS, MODEL = "vectors.faiss", "rows.json", "model.keras"

_ATTEMPTS = 5


@dataclass(frozen=True)
class Content:
    """What the folder of an index holds."""

    indexed: IndexedRows
    encoder: Encoder
    threshold: Threshold | None
    version: int


def save(
    folder: Path,
    indexed: IndexedRows,
    identity: ModelIdentity | None,
    threshold: Threshold | None,
    model: keras.Model | None,
    expected: int | None,
) -> int:
    """Writes an index; see `store.write`."""
    import faiss

    store.check_free(folder)
    # Rows hold the interpreter's lock while they are written, so that nothing
    # could go on beside them; vectors do not.
    sources: dict[str, store.Source] = {
        ROWS: indexed.table.write,
        VECTORS: indexed.engine.source,
    }
    if model is not None:
        sources[MODEL] = model.save
    content = {
        "dim": indexed.engine.dim,
        "rows": len(indexed.table),
        "next_id": indexed.table.next_id,
        "hidden": indexed.hidden.tolist(),
        "factory": indexed.factory,
        "parameters": indexed.parameters,
        "recall": _plain(indexed.recall),
        "threshold": _plain(threshold),
        "model": _plain(identity),
        "faiss": faiss.__version__,
    }
    return store.write(folder, content, sources, expected=expected)


def load(folder: Path, verify: bool) -> Content:
    """Reads an index; see `Index.load`."""
    for _ in range(_ATTEMPTS):
        manifest = store.read(folder)
        try:
            return _load(folder, manifest, verify)
        except FileNotFoundError:
            # Another process may have replaced the version meanwhile.
            if store.read(folder) == manifest:
                raise
    raise store.IndexFileError(
        f"The index {str(folder)!r} is replaced faster than it can be read. "
        "Read it again when no process writes it."
    )


def _load(folder: Path, manifest: Config, verify: bool) -> Content:
    def content(name: str) -> Memory:
        return store.read_file(folder, manifest, name, verify)

    factory = manifest["factory"]
    with ThreadPoolExecutor() as pool:
        # By far the largest, and free of the interpreter's lock.
        reading = pool.submit(content, VECTORS)
        text = str(content(ROWS).data, "ascii")
        table = RowTable.read(text, manifest["next_id"])
        ids = table.ids
        if manifest["hidden"]:
            ids = np.sort(np.append(ids, manifest["hidden"]))
        engine = Engine.read(reading.result(), factory, ids)
    model = None
    if MODEL in manifest["files"]:
        model = store.checked_file(folder, manifest, MODEL, verify)
    identity, threshold, recall = (
        manifest["model"],
        manifest["threshold"],
        manifest["recall"],
    )
    return Content(
        IndexedRows(
            engine,
            table,
            factory,
            manifest["parameters"],
            recall and Recall.from_dict(recall),
        ),
        Encoder(
            identity=identity and ModelIdentity.from_dict(identity),
            file=model,
        ),
        threshold and Threshold.from_dict(threshold),
        manifest["version"],
    )


def _plain(x: Any) -> Config | None:
    return None if x is None else x.to_dict()
