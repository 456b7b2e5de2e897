"""Multiply-adds of a model, counted in the graphs that TensorFlow runs.

Convolutions and matrix products count, one multiplication and addition as one
operation, as papers count "flops"; everything else is left out. Of branches of
which a step takes one, the largest counts.
"""

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import (
    function_def_to_graph,
)

from keras_dml import MetricModel

Library = Mapping[str, Any]
"""Definitions of functions by name: branches and bodies of loops."""

_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def to_embed(model: MetricModel) -> int:
    """Multiply-adds to embed one image."""
    image = tf.TensorSpec((1, *model.input_shape[1:]), "float32")
    return counted(lambda x: model(x, training=False), image)


def of_a_step(model: MetricModel, data: Any) -> int:
    """Multiply-adds of a training step on a batch, with its update."""
    model.make_train_function()
    return counted(model.train_step, data)


def counted(function: Any, *arguments: Any) -> int:
    """Multiply-adds of a function of tensors, given them or their shapes."""
    graph_function = tf.function(function, autograph=False)
    graph = graph_function.get_concrete_function(*arguments).graph
    library = {
        x.signature.name: x for x in graph.as_graph_def().library.function
    }
    return in_graph(graph, library)


def in_graph(graph: Any, library: Library) -> int:
    """Multiply-adds of the operations that a function's graph runs."""
    return sum(_of_operation(op, library) for op in _needed(graph))


def _needed(graph: Any) -> set[tf.Operation]:
    """Operations that outputs or effects depend on; others are not run."""
    names: set[tf.Operation] = set()
    waiting = [x.op for x in graph.outputs] + list(graph.control_outputs)
    while waiting:
        op = waiting.pop()
        if op not in names:
            names.add(op)
            waiting += [x.op for x in op.inputs] + list(op.control_inputs)
    return names


def _of_operation(op: tf.Operation, library: Library) -> int:
    if op.type in _BRANCHES:
        return max(_in_functions(op, library, op.inputs[1:]))
    if op.type in _CALLS:
        return sum(_in_functions(op, library, op.inputs))
    if op.type in _LOOPS:
        if any(_in_functions(op, library, op.inputs)):
            raise ValueError(f"How often {op.name} runs is not known.")
        return 0
    count = _COUNTS.get(op.type)
    return 0 if count is None else count(op)


def _in_functions(op: tf.Operation, library: Library, inputs: Any) -> list[int]:
    shapes = [x.shape for x in inputs]
    return [
        in_graph(
            function_def_to_graph(library[x], input_shapes=shapes), library
        )
        for x in _functions_of(op)
    ]


def _functions_of(op: tf.Operation) -> list[str]:
    names = []
    for value in op.node_def.attr.values():
        names += [x.name for x in value.list.func]
        names += [value.func.name] if value.HasField("func") else []
    return names


def _size(tensor: tf.Tensor) -> int:
    return math.prod(tensor.shape.as_list())


def _convolution(op: tf.Operation, maps: tf.Tensor, kernel: tf.Tensor) -> int:
    height, width, channels, _ = kernel.shape.as_list()
    return _size(maps) * height * width * channels


def _depthwise(op: tf.Operation) -> int:
    height, width, *_ = op.inputs[1].shape.as_list()
    return _size(op.outputs[0]) * height * width


def _product(op: tf.Operation, transposed: str) -> int:
    is_transposed = op.get_attr(transposed)
    inner = op.inputs[0].shape[-2 if is_transposed else -1]
    return _size(op.outputs[0]) * inner


def _einsum(op: tf.Operation) -> int:
    """The product of the sizes of all indices."""
    terms = op.get_attr("equation").decode().split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, op.inputs, strict=True):
        if "." in term:
            raise ValueError(f"Write out the indices of {op.name}.")
        sizes.update(zip(term, tensor.shape.as_list(), strict=True))
    return math.prod(sizes.values())


_COUNTS: dict[str, Any] = {
    "Conv2D": lambda op: _convolution(op, op.outputs[0], op.inputs[1]),
    "Conv2DBackpropInput": lambda op: _convolution(
        op, op.inputs[2], op.inputs[1]
    ),
    "Conv2DBackpropFilter": lambda op: _convolution(
        op, op.inputs[2], op.outputs[0]
    ),
    "DepthwiseConv2dNative": _depthwise,
    "MatMul": lambda op: _product(op, "transpose_a"),
    "BatchMatMulV2": lambda op: _product(op, "adj_x"),
    "Einsum": _einsum,
}
