"""Tensors in the graph of a training step."""

import keras
import numpy.typing as npt
import tensorflow as tf


def shapes_in_step(
    model: keras.Model, x: npt.ArrayLike, labels: npt.ArrayLike
) -> set[tuple[int, ...]]:
    """Shapes of all tensors, as far as their rank is known."""
    model.make_train_function()
    data = tf.constant(x), {"label": tf.constant(labels)}
    graph = tf.function(model.train_step).get_concrete_function(data).graph
    return {
        tuple(tensor.shape)
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.rank is not None
    }
