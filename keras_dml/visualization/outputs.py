"""Outputs of a model's head for whole sets of images."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_dml.data import eval_batches
from keras_dml.data.loading import python_errors
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.progress import with_progress
from keras_dml.utils.types import FloatArray, Shape, Tensor


def head_outputs(
    model: keras.Model,
    images: Any,
    names: Sequence[str] = ("embedding", "parts"),
    batch_size: int = 256,
    progress: bool | None = None,
) -> dict[str, FloatArray]:
    """Computes named outputs of a model's head for all images, in one pass.

    Args:
        model: A `MetricModel`.
        images: An `ImageSet` of N images, seen in their test view, or other
            `Examples`.
        names: Names of outputs; names that the head does not have are ignored.
        batch_size: Number of images processed at a time.
        progress: Whether to show progress; by default, only in a terminal.

    Returns:
        The outputs by name, (N, ...) float32, in the order of the rows.

    Raises:
        ValueError: If there are no images.
    """
    available = sorted(set(names) & set(output_shapes(model)))

    def choose(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: outputs[name] for name in available}

    return predict(model, images, choose, batch_size, progress)


def predict(
    model: keras.Model,
    images: Any,
    select: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    batch_size: int,
    progress: bool | None = None,
) -> dict[str, FloatArray]:
    """Applies a function to the outputs of a head; see `head_outputs`."""
    check_not_empty("a model's outputs", "images", images)
    outputs = _Outputs(model, select)
    batches = eval_batches(images, images.view_for(model), batch_size)
    count = -(-len(images) // batch_size)
    with python_errors():
        parts = [
            outputs.predict_on_batch(np.asarray(batch))
            for batch in with_progress(batches, count, "Embedding", progress)
        ]
    return {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }


def output_shapes(model: keras.Model) -> dict[str, Shape]:
    """The outputs of a model's head by name; none if it has no head."""
    head = getattr(model, "head", None)
    if head is None:
        return {}
    features = model.backbone.output_shape
    shapes: dict[str, Shape] = head.compute_output_shape(features)
    return shapes


class _Outputs(keras.Model):
    """A model whose outputs are a function of another model's outputs."""

    def __init__(self, model: keras.Model, select: Callable[..., Any]) -> None:
        super().__init__(name="outputs")
        self.model = model
        self.select = select

    def call(self, images: Tensor) -> dict[str, Tensor]:
        outputs = self.select(self.model.outputs_of(images))
        return {name: ops.cast(x, "float32") for name, x in outputs.items()}
