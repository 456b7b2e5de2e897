"""Loading: from files to what is served.

A model of Keras is exported as `keras-dml export` does, and that export is
what is served: a client gets from this server what it would get from
TensorFlow Serving.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.embedding.engines import KERAS, by_openvino
from keras_dml.export import Gallery, export_model
from keras_dml.export.gallery import as_gallery
from keras_dml.export.served import ServedImages, generated_batches
from keras_dml.export.signatures import (
    ENCODED,
    LOOKUP,
    PIXELS,
    Lookup,
    lookups,
)
from keras_dml.export.versions import is_version
from keras_dml.model.generated import takes_images
from keras_dml.runs.folder import load_model
from keras_dml.search import Index
from keras_dml.serve.current import Current, Definition, read_definitions
from keras_dml.serve.outputs import Outputs
from keras_dml.serve.sources import Source
from keras_dml.utils.models import read_model
from keras_dml.utils.types import Tensor, Tensors

logger = logging.getLogger(__name__)

NEIGHBORS = 10
"""What "lookup" finds, as in `keras-dml export`."""

_INIT = "__saved_model_init_op"


def load(source: Source, before: int = 0) -> Current:
    """Loads a model and its gallery.

    Args:
        source: Where they are.
        before: The version that was served before, of a model that is not
            exported and has no number of its own; the new one is the next.

    Raises:
        OSError: If something is not there, or cannot be read.
        ValueError: If it is damaged, or model and gallery do not fit.
    """
    path, folder, place = source.path, source.export(), source.gallery
    gallery = None
    if folder is None:
        model = load_model(path) if path.is_dir() else read_model(path)
        index = None if place is None else Index.load(place, model)
        version = before + 1
        gallery = None if index is None else _exportable(model, index)
        loaded, definitions = _export(model, gallery, source.name, version)
    else:
        index = None if place is None else Index.load(place)
        model = None if index is None else index.model
        version = int(folder.name) if is_version(folder) else 1
        loaded, definitions = _load_signatures(folder)
    signatures = {k: x for k, x in loaded.signatures.items() if k != _INIT}
    view = outputs = None
    if model is not None and takes_images(model):
        view = View.of(model)
        outputs = Outputs(model, view)
        if folder is not None:
            _check_same(model, view, signatures)
    if source.engine != KERAS:
        signatures |= _on_openvino(None if folder else model, view, gallery)
    return Current(
        source.name,
        version,
        model,
        view,
        index,
        signatures,
        definitions,
        loaded,
        outputs,
    )


def with_gallery(current: Current, source: Source) -> Current | None:
    """The model that is served, with the gallery as it now is on disk.

    Nothing is exported: "lookup" and "lookup_k" search the new gallery by the
    embeddings of "encoded", with the operations that an export has.

    Returns:
        None if all must be loaded, as the signatures would be others.

    Raises:
        OSError, ValueError: As of `load`.
    """
    if current.model is None or source.gallery is None:
        return None
    index = Index.load(source.gallery, current.model)
    if source.export() is not None:
        return replace(current, index=index)
    gallery = _exportable(current.model, index)
    known = current.definitions.get(LOOKUP)
    signatures = dict(current.signatures)
    if gallery is not None and known is not None and ENCODED in signatures:
        k = _neighbors(gallery)
        outputs = known.outputs
        columns = {"ids": gallery.ids, "labels": gallery.labels}
        if outputs["ids"].shape.as_list() != [None, k] or any(
            outputs[name].dtype != tf.as_dtype(np.asarray(column).dtype)
            for name, column in columns.items()
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


def _export(
    model: keras.Model, gallery: Gallery | None, name: str, version: int
) -> tuple[Any, dict[str, Definition]]:
    """The signatures of a model's export, which need not stay on disk."""
    k = _neighbors(gallery)
    with tempfile.TemporaryDirectory(prefix="keras-dml-serve-") as folder:
        place = Path(folder, name, str(version))
        return _load_signatures(
            export_model(model, place, gallery=gallery, k=k)
        )


def _load_signatures(folder: Path) -> tuple[Any, dict[str, Definition]]:
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


def _on_openvino(
    model: keras.Model | None, view: View | None, gallery: Gallery | None
) -> dict[str, Callable[..., Tensors]]:
    """All signatures, with OpenVINO in them; none where that cannot be."""
    if model is None or view is None:
        logger.warning(
            "OpenVINO does not embed: it takes a run or .keras file with a "
            "model of images."
        )
        return {}
    views = view.apply(generated_batches(view)[0]).numpy()
    expected = model.predict(views, verbose=0)
    predict = by_openvino(model, views, expected)
    if predict is None:
        return {}

    def embed_views(seen: Tensor) -> Tensor:
        found = tf.numpy_function(predict, [seen], "float32", stateful=False)
        return tf.ensure_shape(found, (None, expected.shape[1]))

    k = _neighbors(gallery)
    served = ServedImages(model, gallery, k, view, "float32", (), embed_views)
    return {
        name: tf.function(
            function, served.specs(name), autograph=False
        ).get_concrete_function()
        for name, function in served.functions().items()
    }


def _neighbors(gallery: Gallery | None) -> int:
    return NEIGHBORS if gallery is None else min(NEIGHBORS, len(gallery))


def _exportable(model: keras.Model, index: Index) -> Gallery | None:
    """The gallery as part of an export; None if it cannot be that."""
    try:
        gallery = as_gallery(model, index)
    # It says what is missing: labels, memory, the metric.
    except (AttributeError, ValueError) as error:
        logger.warning("`lookup` and `lookup_k` are not served: %s", error)
        return None
    return gallery if len(gallery) else None


def _check_same(
    model: keras.Model, view: View, signatures: Mapping[str, Any]
) -> None:
    """Raises `ValueError` if the index is of another model."""
    signature = signatures.get(PIXELS)
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
