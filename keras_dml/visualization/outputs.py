"""All outputs of a model's head, for whole sets of images."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Shape, Tensor


def head_outputs(
    model: keras.Model,
    images: Any,
    names: Sequence[str] = ("embedding", "parts"),
    batch_size: int = 256,
    progress: bool | None = None,
) -> dict[str, FloatArray]:
    """Named outputs of a model's head for all images, in one pass.

    Args:
        model: A `MetricModel`.
        images: An `ImageSet` of N images, seen in their test view.
        names: Names of outputs; those that the head does not have are
            left out.
        batch_size: Images computed at a time.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        For each name (N, ...) float32, in the order of the rows.

    Raises:
        ValueError: If there are no images.
    """
    from keras_dml.data import View, eval_batches

    if not len(images):
        raise ValueError(
            "`images` of head_outputs must not be empty. Received: 0 images."
        )
    outputs = _Outputs(model, set(names) & set(output_shapes(model)))
    batches = eval_batches(images, View.of(model), batch_size)
    count = -(-len(images) // batch_size)
    found = [
        outputs.predict_on_batch(batch)
        for batch in tracked(batches, count, "Embedding", progress)
    ]
    return {
        name: np.concatenate([np.asarray(part[name]) for part in found])
        for name in found[0]
    }


def output_shapes(model: keras.Model) -> dict[str, Shape]:
    """The outputs of a model's head by name; none if it has no head."""
    head = getattr(model, "head", None)
    if head is None:
        return {}
    shapes: dict[str, Shape]
    shapes = head.compute_output_shape(model.backbone.output_shape)
    return shapes


class _Outputs(keras.Model):
    """Some of a model's outputs as the outputs of a model."""

    def __init__(self, model: keras.Model, names: set[str]) -> None:
        super().__init__(name="outputs")
        self.model = model
        self.names = sorted(names)

    def call(self, images: Tensor) -> dict[str, Tensor]:
        outputs = self.model.outputs_of(images)
        return {name: ops.cast(outputs[name], "float32") for name in self.names}
