"""SavedModels of models that do not take images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.export.files import OK
from keras_dml.export.gallery import Gallery
from keras_dml.export.parity import check_difference, highest_cosines
from keras_dml.export.requests import with_k, write_logs
from keras_dml.export.signatures import (
    K_SPEC,
    LOOKUP,
    LOOKUP_K,
    PIXELS,
    Lookup,
    embed,
    write_archive,
)
from keras_dml.model.generated import generated_inputs, input_specs
from keras_dml.utils.types import Tensor, Tensors

ONLY = "inputs"
"""The name of the input in signatures of models with a single input."""


@dataclass(frozen=True)
class ServedArrays:
    """The parts of a SavedModel.

    Attributes:
        model: The model.
        gallery: The gallery that "lookup" and "lookup_k" search; None to leave
            these signatures out.
        k: Number of neighbors that "lookup" returns for each example.
    """

    model: keras.Model
    gallery: Gallery | None
    k: int

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        """Inputs by the names that signatures have for them."""
        specs = input_specs(self.model)
        named = specs if isinstance(specs, dict) else {ONLY: specs}
        return {
            name: tf.TensorSpec(spec.shape, spec.dtype, name)
            for name, spec in named.items()
        }

    def as_taken(self, named: dict[str, Any]) -> Any:
        """Named inputs in the structure that the model takes them."""
        return named if list(self.specs) != [ONLY] else named[ONLY]

    def samples(self) -> Iterator[dict[str, Any]]:
        """Generated inputs by name: a batch of two, and of one."""
        found = generated_inputs(self.model)
        named = found if isinstance(found, dict) else {ONLY: found}
        for count in (2, 1):
            yield {k: tf.constant(x[:count]) for k, x in named.items()}

    def lookups(
        self, named: dict[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Signatures that search, with what they take of these inputs."""
        yield LOOKUP, named
        # An input of the model may have the name.
        if K_SPEC.name not in named:
            yield LOOKUP_K, with_k(named, self.k)


def write_arrays(served: ServedArrays, folder: Path, name: str) -> None:
    """Writes a SavedModel, with requests that warm a server up."""
    archive = keras.export.ExportArchive()
    # Endpoints bring the variables that they use, but no tables, such as the
    # vocabulary of a layer that takes texts. All of these are in front.
    archive.track(getattr(served.model, "backbone", served.model))

    @tf.function(input_signature=[served.specs], autograph=False)
    def embed_named(named: dict[str, Tensor]) -> Tensor:
        # Not every layer takes a batch of nothing.
        count = tf.shape(next(iter(named.values())))[0]
        padded = {k: _pad_empty(x) for k, x in named.items()}
        return embed(served.model, served.as_taken(padded))[:count]

    archive.add_endpoint(
        PIXELS, lambda named: {"embedding": embed_named(named)}, [served.specs]
    )
    logged = [(PIXELS, x) for x in served.samples()]
    if served.gallery is not None:
        find = Lookup(served.gallery, served.k)
        _add_lookups(archive, served.specs, embed_named, find)
        logged += [y for x in served.samples() for y in served.lookups(x)]
    write_archive(archive, folder)
    write_logs(folder, name, logged)


def _add_lookups(
    archive: keras.export.ExportArchive,
    specs: dict[str, tf.TensorSpec],
    embed_named: Callable[[Tensors], Tensor],
    find: Lookup,
) -> None:
    def embed_ok(named: Tensors) -> tuple[Tensor, Tensor]:
        embeddings = embed_named(named)
        return tf.fill(tf.shape(embeddings)[:1], OK), embeddings

    def look_up(named: Tensors) -> Tensors:
        found = find(*embed_ok(named))
        return {k: x for k, x in found.items() if k != "status"}

    archive.add_endpoint(LOOKUP, look_up, [specs])
    if K_SPEC.name not in specs:
        archive.add_endpoint(
            LOOKUP_K,
            lambda named, k: find.of_own_k(*embed_ok(named), k),
            [specs, K_SPEC],
        )


def compare_arrays(
    served: ServedArrays, folder: Path, tolerance: float
) -> None:
    """Loads an export; raises `RuntimeError` if it differs from the model."""
    with tf.device("CPU:0"):
        signatures = tf.saved_model.load(str(folder)).signatures
        for named in served.samples():
            expected = embed(served.model, served.as_taken(named)).numpy()
            given = signatures[PIXELS](**named)["embedding"].numpy()
            check_difference(given - expected, "embedding", tolerance)
            if served.gallery is None:
                continue
            rows = served.gallery.embeddings
            cosines = highest_cosines(expected, rows, served.k)
            for name, inputs in served.lookups(named):
                scores = signatures[name](**inputs)["scores"].numpy()
                check_difference(scores - cosines, name, tolerance)


def _pad_empty(x: Tensor) -> Tensor:
    """One row of nothing, where there is none."""
    shape = tf.shape(x)
    # A row has at least one item along each axis.
    row = tf.concat([[1], tf.maximum(shape[1:], 1)], axis=0)
    padded = tf.cond(shape[0] > 0, lambda: x, lambda: tf.zeros(row, x.dtype))
    return tf.ensure_shape(padded, x.shape)


def check_embeds(model: keras.Model) -> int:
    """The length of the embeddings, D, that a model gives of its inputs.

    Raises:
        ValueError: If it gives something else.
    """
    x = keras.tree.map_structure(tf.constant, generated_inputs(model))
    output = model(x, training=False)
    shape = getattr(output, "shape", None)
    if shape is None or len(shape) != 2:
        raise ValueError(
            "`model` of export must return one embedding per example, (B, D). "
            f"Received: {model!r}, which returns "
            f"{type(output).__name__ if shape is None else tuple(shape)}."
        )
    return int(np.shape(output)[1])
