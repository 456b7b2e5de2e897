"""Loading: from files to what is served.

A model of Keras is exported as `keras-dml export` does, and that export is
what is served: a client gets from this server what it would get from
TensorFlow Serving.
"""

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export import Gallery, export_model
from keras_dml.export.gallery import as_gallery
from keras_dml.export.requests import generated_batches
from keras_dml.export.signatures import ENCODED, LOOKUP, Lookup, lookups
from keras_dml.model.generated import takes_images
from keras_dml.runs.folder import load_model
from keras_dml.search import Index, open_index
from keras_dml.serve.current import Current, Definition, read_definitions
from keras_dml.serve.sources import (
    GallerySource,
    KerasSource,
    SavedSource,
    Source,
)
from keras_dml.utils.model_files import read_model

logger = logging.getLogger(__name__)

NEIGHBORS = 10
"""What "lookup" finds, as in `keras-dml export`."""

_INIT = "__saved_model_init_op"


def load(
    source: Source, gallery: GallerySource | None, before: int = 0
) -> Current:
    """Loads a model and its gallery.

    Args:
        source: Where the model is.
        gallery: Where its gallery is.
        before: The version that was served before, of a source that does
            not number its versions itself; the new one is the next.

    Raises:
        OSError: If something is not there, or cannot be read.
        ValueError: If it is damaged, or model and gallery do not fit.
    """
    if isinstance(source, KerasSource):
        return _load_keras(source, gallery, before + 1)
    return _load_saved(source, gallery)


def with_gallery(
    current: Current, source: Source, place: GallerySource
) -> Current | None:
    """The model that is served, with the gallery as it now is on disk.

    Nothing is exported: "lookup" and "lookup_k" search the new gallery by the
    embeddings of "encoded", with the operations that an export has.

    Returns:
        None if all must be loaded, as the signatures would be others.

    Raises:
        OSError, ValueError: As of `load`.
    """
    if current.index is None or current.model is None:
        return None
    index = open_index(place.place, current.model)
    if not isinstance(source, KerasSource):
        return replace(current, index=index)
    gallery = _exportable(current.model, index)
    known = current.definitions.get(LOOKUP)
    signatures = dict(current.signatures)
    if gallery is not None and known is not None and ENCODED in signatures:
        k = min(NEIGHBORS, len(gallery))
        outputs = known.outputs
        if outputs["ids"].shape.as_list() != [None, k] or any(
            outputs[name].dtype != tf.as_dtype(np.asarray(column).dtype)
            for name, column in (
                ("ids", gallery.ids),
                ("labels", gallery.labels),
            )
        ):
            return None
        signatures |= lookups(signatures[ENCODED], Lookup(gallery, k))
    elif gallery is not None or known is not None:
        return None
    return replace(
        current,
        version=current.version + 1,
        index=index,
        signatures=signatures,
    )


def _load_keras(
    source: KerasSource, place: GallerySource | None, version: int
) -> Current:
    path = source.path
    model = load_model(path) if path.is_dir() else read_model(path)
    index = None if place is None else open_index(place.place, model)
    with tempfile.TemporaryDirectory(prefix="keras-dml-serve-") as folder:
        exported = export_model(
            model,
            Path(folder, source.name, str(version)),
            gallery=(found := _exportable(model, index)),
            k=NEIGHBORS if found is None else min(NEIGHBORS, len(found)),
        )
        loaded, definitions = _load_signatures(exported)
    view = View.of(model) if takes_images(model) else None
    return Current(
        source.name,
        version,
        model,
        view,
        index,
        _signatures(loaded),
        definitions,
        loaded,
    )


def _load_saved(source: SavedSource, place: GallerySource | None) -> Current:
    folder, version = source.folder(), source.version()
    loaded, definitions = _load_signatures(folder)
    index = None if place is None else open_index(place.place)
    model = None if index is None else index.model
    view = None
    if model is not None and takes_images(model):
        view = View.of(model)
        _check_same(model, view, _signatures(loaded))
    return Current(
        source.name,
        version,
        model,
        view,
        index,
        _signatures(loaded),
        definitions,
        loaded,
    )


def _load_signatures(
    folder: Path,
) -> tuple[Any, dict[str, Definition]]:
    definitions = read_definitions(folder)
    try:
        loaded = tf.saved_model.load(str(folder))
    # Whatever TensorFlow stumbles over, the export is what is wrong.
    except Exception as error:
        raise ValueError(
            f"The SavedModel in {str(folder)!r} cannot be loaded. "
            f"{type(error).__name__}: {str(error)[:300]}"
        ) from error
    return loaded, definitions


def _signatures(loaded: Any) -> dict[str, Any]:
    return {k: x for k, x in loaded.signatures.items() if k != _INIT}


def _exportable(model: keras.Model, index: Index | None) -> Gallery | None:
    """The gallery as part of an export; None if it cannot be that."""
    if index is None:
        return None
    try:
        gallery = as_gallery(model, index, None, index.dim)
    # It says what is missing: labels, memory, the metric.
    except (AttributeError, ValueError) as error:
        logger.warning("`lookup` and `lookup_k` are not served: %s", error)
        return None
    return gallery if len(gallery) else None


def _check_same(
    model: keras.Model, view: View, signatures: Mapping[str, Any]
) -> None:
    """Raises `ValueError` if the index is of another model."""
    signature = signatures.get("serving_default")
    if signature is None:
        return
    batch = generated_batches(view)[0]
    expected = model.predict(view.apply(batch).numpy(), verbose=0)
    try:
        found = signature(images=tf.constant(batch.astype("float32")))
        same = np.allclose(found["embedding"].numpy(), expected, atol=1e-3)
    # Another model may take and return anything.
    except Exception:
        same = False
    if not same:
        raise ValueError(
            "The gallery must have been built with the model that is served. "
            "Received: an index built with a different model. Use `keras-dml "
            "index` to build it again, or serve its model."
        )
