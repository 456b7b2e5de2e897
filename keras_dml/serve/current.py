"""Current: what is served now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.evaluation.pairs import negative_pairs
from keras_dml.search import Index
from keras_dml.search.metrics import Metric
from keras_dml.serve.outputs import Outputs
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks

MOST_PAIRS = 100_000
"""Pairs of different classes whose scores are kept."""


@dataclass(frozen=True)
class Definition:
    """What a signature of a SavedModel takes and returns.

    Attributes:
        inputs, outputs: Tensors by name.
        json: The JSON form of its `SignatureDef`.
    """

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    json: Mapping[str, Any]

    @property
    def is_batched(self) -> bool:
        """Whether requests can be joined along the first axis."""
        specs = [*self.inputs.values(), *self.outputs.values()]
        return all(spec.shape[:1].as_list() == [None] for spec in specs)


@dataclass(frozen=True)
class Current:
    """A model, its gallery and its signatures: what one version serves.

    It is replaced as a whole when a new version is loaded. A request keeps
    the one that it began with.

    Attributes:
        name: Of the model, as addresses name it.
        version: Its version.
        model: From views to embeddings; None if only signatures are known.
        view: What the model sees of an image; None without a model, and
            for one that takes no images.
        index: The gallery; None without one.
        signatures: Functions by name: from tensors by keyword to a dict of
            tensors.
        definitions: What signatures take and return, by name.
        loaded: What the signatures belong to, and must not outlive.
        outputs: What the page shows of pictures; None without a view.
    """

    name: str
    version: int
    model: keras.Model | None
    view: View | None
    index: Index | None
    signatures: Mapping[str, Callable[..., Mapping[str, Any]]]
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    loaded: Any = None
    outputs: Outputs | None = None

    @cached_property
    def negatives(self) -> FloatArray | None:
        """See `scores_of_negatives`; computed once for a gallery."""
        return scores_of_negatives(self.index)


def scores_of_negatives(
    index: Index | None, most: int = MOST_PAIRS
) -> FloatArray | None:
    """Scores of pairs of rows of different classes, ascending.

    Classes are the gallery's own, see `Index.labels`. Of more pairs, `most`
    are drawn at random, with seed 0.

    Returns:
        None without such a pair, if a row has no class or several, and if the
        gallery does not keep its embeddings, being compressed.
    """
    if index is None:
        return None
    try:
        labels, vectors = np.asarray(index.labels), index.embeddings
    except ValueError:
        return None
    if labels.ndim != 1 or labels.dtype == object:
        return None
    first, second = negative_pairs(labels, most)
    pairs = Metric(index.metric).pairs
    found = [
        pairs(vectors[first[some]], vectors[second[some]])
        for some in blocks(len(first), 10_000)
    ]
    return np.sort(np.concatenate(found)) if found else None


def read_definitions(folder: Path) -> dict[str, Definition]:
    """What the signatures of a SavedModel take and return, by name.

    Raises:
        ValueError: If there is no SavedModel.
    """
    # Protobuf comes with TensorFlow, and has no types.
    from google.protobuf.json_format import MessageToDict
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        content = (folder / "saved_model.pb").read_bytes()
        graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0]
    # Whatever protobuf stumbles over, the file is what is wrong.
    except Exception as error:
        raise ValueError(
            f"There is no SavedModel in {str(folder)!r}: {error}. Use "
            "`keras-dml export` to write one."
        ) from error
    return {
        name: Definition(
            _specs(signature.inputs),
            _specs(signature.outputs),
            MessageToDict(
                signature,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            ),
        )
        for name, signature in graph.signature_def.items()
    }


def _specs(infos: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(info.tensor_shape, info.dtype, name)
        for name, info in infos.items()
        if info.dtype  # Else it is an operation, and no tensor.
    }
