"""Networks in 8-bit integers, calibrated on images; heads stay in float32.

Each converter is given a model with two kinds of outputs, the embedding and
the features that the head gets. What the features are computed from is the
network; everything else is the head, which no runtime may quantize.
"""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from keras_dml.data import Examples, eval_batches
from keras_dml.data.as_examples import as_examples
from keras_dml.embedding.exported import converted
from keras_dml.model.embedding_model import EmbeddingModel
from keras_dml.utils.arguments import (
    check_choice,
    check_not_empty,
    import_extra,
)
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.terminal import stderr_held_back
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks

EMBEDDING = "embedding"

MOST = 300
"""Examples to calibrate with; more hardly move the ranges."""

_BATCH = 10
"""Of calibration, whose activations are all in memory at once."""

_UNIT = 1e-5
"""By how much the length of an embedding may differ from 1."""


def check_quantize(
    model: keras.Model, format: str, quantize: str | None, calibration: Any
) -> None:
    """Raises `ValueError` for arguments that do not go together."""
    if quantize is None:
        if calibration is not None:
            raise ValueError(
                "`calibration` of export must only be given with `quantize`. "
                f"Received: {type(calibration).__name__} and quantize=None. "
                "Use quantize='int8'."
            )
        return
    check_choice("export", "quantize", quantize, ("int8",))
    if format == "saved_model":
        raise ValueError(
            "`quantize` of export must only be given for the formats onnx, "
            "litert and openvino. Received: format='saved_model'. Call "
            "model.quantize('int8') before, by which Keras quantizes dense "
            "layers alone, no convolutions."
        )
    if calibration is None:
        raise ValueError(
            "`calibration` of export must be given with `quantize`: a few "
            "hundred of the training images. Received: calibration=None."
        )
    if not isinstance(model, EmbeddingModel):
        raise ValueError(
            "`model` of export must be a MetricModel with `quantize`, so that "
            f"its head is known. Received: {model!r}. Use "
            "dml.MetricModel(backbone, head, objective)."
        )


def calibration_of(given: Any) -> Examples:
    """At most `MOST` of the examples that are given, evenly spaced."""
    examples = as_examples(given, "calibration", "export")
    check_not_empty("export", "calibration", examples)
    count = len(examples)
    rows = np.linspace(0, count - 1, min(count, MOST)).round().astype(int)
    return examples.select(rows)


def calibration_views(model: keras.Model, given: Any) -> FloatArray:
    """What the model sees of them, (N, …)."""
    examples = calibration_of(given)
    batches = eval_batches(examples, examples.view_for(model))
    return np.concatenate([np.asarray(x) for x in batches])


def check_unit(embeddings: FloatArray, file_format: str) -> None:
    """Raises `RuntimeError` unless embeddings have length 1, or 0."""
    norms = np.linalg.norm(embeddings.astype(float), axis=1)
    different = np.where(norms > 0.5, np.abs(norms - 1), norms).max()
    # Not a number is not within it.
    if not different <= _UNIT:
        raise RuntimeError(
            "Embeddings of a quantized export must have length 1. Those of "
            f"its {file_format} model differ by {different:.3g}. Nothing was "
            "written. Use another format."
        )


def write_quantized(
    model: EmbeddingModel,
    spec: keras.KerasTensor,
    file_format: str,
    path: Path,
    seen: FloatArray,
) -> None:
    """Writes a model whose network computes in 8-bit integers.

    Its input has the name of its spec. Activations are measured on what is
    `seen`, (N, …).
    """
    given = keras.Input(
        batch_shape=spec.shape, dtype=spec.dtype, name=spec.name
    )
    features = model.backbone(given)
    outputs = {
        f"features_{i}": x for i, x in enumerate(keras.tree.flatten(features))
    }
    outputs[EMBEDDING] = model.head(features)[EMBEDDING]
    with _quietly():
        _WRITERS[file_format](keras.Model(given, outputs), spec, path, seen)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what converters tell of their progress, some of it from C++."""
    log = logging.getLogger("nncf")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            stderr_held_back(),
        ):
            # Of a class of TensorFlow that it uses itself.
            deprecated = r"\s+Warning: tf.lite.Interpreter is deprecated"
            warnings.filterwarnings("ignore", deprecated, UserWarning)
            yield
    finally:
        log.setLevel(level)


def _write_onnx(
    parts: keras.Model, spec: keras.KerasTensor, path: Path, seen: FloatArray
) -> None:
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    batches = iter([{spec.name: x} for x in _batches(seen)])
    with tempfile.TemporaryDirectory() as folder:
        whole, folded = Path(folder, "whole.onnx"), Path(folder, "folded.onnx")
        write_by_keras(parts, spec, "onnx", whole)
        # Batch normalization becomes a part of convolutions.
        quant_pre_process(whole, folded, skip_symbolic_shape=True)
        model = onnx.load(folded)
        graph = model.graph
        made = {y: (x.name, x.input) for x in graph.node for y in x.output}
        others = [x for x in graph.output if x.name != EMBEDDING]
        head = head_of([x.name for x in others], made)
        for output in others:
            graph.output.remove(output)
        quantization.quantize_static(
            model,
            path,
            SimpleNamespace(get_next=lambda: next(batches, None)),
            nodes_to_exclude=head,
            per_channel=True,
            # Processors without VNNI add two products in 16 bits, in which
            # weights of more than seven bits overflow.
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


def _write_litert(
    parts: keras.Model, spec: keras.KerasTensor, path: Path, seen: FloatArray
) -> None:
    from tensorflow.lite.tools import flatbuffer_utils

    with _converter(parts, spec) as converter:
        content = converter.convert()
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    [graph], [signature] = model.subgraphs, model.signatureDefs
    names = [x.name.decode() for x in graph.tensors]
    made = {
        names[y]: (names[x.outputs[0]], [names[i] for i in x.inputs if i >= 0])
        for x in graph.operators
        for y in x.outputs
    }
    features = [
        names[x.tensorIndex]
        for x in signature.outputs
        if x.name.decode() != EMBEDDING
    ]
    options = tf.lite.experimental.QuantizationDebugOptions(
        denylisted_nodes=head_of(features, made)
    )
    embedding = {EMBEDDING: parts.output[EMBEDDING]}
    whole = keras.Model(parts.input, embedding, name=parts.name)
    with _converter(whole, spec) as converter:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            {spec.name: x} for x in _batches(seen)
        )
        debugger = tf.lite.experimental.QuantizationDebugger(
            converter=converter,
            debug_dataset=lambda: ([x] for x in _batches(seen)),
            debug_options=options,
        )
        path.write_bytes(debugger.get_nondebug_quantized_model())


@contextlib.contextmanager
def _converter(model: keras.Model, spec: keras.KerasTensor) -> Iterator[Any]:
    """What makes a functional model one of LiteRT."""
    with tempfile.TemporaryDirectory() as folder:
        write_by_keras(model, spec, "tf_saved_model", Path(folder))
        yield tf.lite.TFLiteConverter.from_saved_model(folder)


def _write_openvino(
    parts: keras.Model, spec: keras.KerasTensor, path: Path, seen: FloatArray
) -> None:
    import openvino

    nncf = import_extra("quantize='int8' of export", "nncf", "openvino")
    from nncf.quantization import advanced_parameters as advanced

    program = on_openvino(parts, spec)
    made = {
        x.get_friendly_name(): (
            x.get_friendly_name(),
            [_name(y.get_source_output()) for y in x.inputs()],
        )
        for x in program.get_ops()
    }
    others = [x for x in program.outputs if EMBEDDING not in x.get_names()]
    head = head_of([_name(x) for x in others], made)
    for output in others:
        program.remove_result(output.get_node())
    quantized = nncf.quantize(
        program,
        nncf.Dataset([x[None] for x in seen]),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(seen),
        ignored_scope=nncf.IgnoredScope(names=head, validate=False),
        advanced_parameters=advanced.AdvancedQuantizationParameters(
            overflow_fix=advanced.OverflowFix.ENABLE  # As of ONNX Runtime.
        ),
    )
    openvino.save_model(quantized, path, compress_to_fp16=False)


def _name(output: Any) -> str:
    name: str = output.get_node().get_friendly_name()
    return name


def on_openvino(model: keras.Model, spec: keras.KerasTensor) -> Any:
    """A functional model as one of OpenVINO, with the names of its outputs."""
    function = tf.function(
        lambda x: model(x, training=False),
        [tf.TensorSpec(spec.shape, spec.dtype, spec.name)],
        autograph=False,
    )
    program = converted(function.get_concrete_function())
    program.inputs[0].get_tensor().set_names({spec.name})
    for output in program.outputs:
        [name] = {*model.output} & output.get_names()
        output.get_tensor().set_names({name})
    return program


def write_by_keras(
    model: keras.Model, spec: keras.KerasTensor, file_format: str, path: Path
) -> None:
    """Writes a functional model, whose input gets the name of the spec."""
    signature = keras.InputSpec(spec.dtype, spec.shape, name=spec.name)
    model.export(
        path, format=file_format, verbose=False, input_signature=[signature]
    )


def _batches(seen: FloatArray) -> list[FloatArray]:
    return [seen[some] for some in blocks(len(seen), _BATCH)]


def head_of(
    features: Iterable[Any], made: Mapping[Any, tuple[str, Sequence[Any]]]
) -> list[str]:
    """The nodes of a graph that features are not computed from.

    Args:
        features: The tensors that the network ends with.
        made: By tensor, the node that makes it and the tensors it is made of.
    """
    todo, head = [*features], {node for node, _ in made.values()}
    while todo:
        node, inputs = made.get(todo.pop(), (None, ()))
        if node in head:
            head.remove(node)
            todo += inputs
    return sorted(head)


_WRITERS = {
    "onnx": _write_onnx,
    "litert": _write_litert,
    "openvino": _write_openvino,
}
