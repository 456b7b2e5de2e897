"""Networks in 8-bit integers, calibrated on images; heads stay in float32.

ONNX Runtime, LiteRT and NNCF quantize, each with its own tools. They are given
a model with two kinds of outputs, the embedding and the features that the head
takes. The nodes that features are computed from are the network; all others are
the head, which no runtime may quantize.
"""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.data import Examples, eval_batches
from keras_dml.data.loading import python_errors
from keras_dml.data.reading import as_examples
from keras_dml.export.portable import (
    new_portable,
    openvino_model,
    write_by_keras,
)
from keras_dml.model.embedding_model import EmbeddingModel
from keras_dml.utils.arguments import (
    check_choice,
    check_not_empty,
    import_extra,
)
from keras_dml.utils.models import input_like
from keras_dml.utils.progress import hold_back_stderr
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks

Batches: TypeAlias = list[FloatArray]
"""Views of the calibration images."""

EMBEDDING = "embedding"

MAX_EXAMPLES = 300
"""Largest number of examples to calibrate with; more hardly change ranges."""

_BATCH_SIZE = 10
"""Number of calibration images whose activations are in memory at once."""

_TRIAL_IMAGES = 32
"""Number of calibration images that the file is tried on."""

_MAX_DISTANCE = 0.25
"""Largest mean distance from the model's embeddings: their cosine is 0.97."""

_UNIT_TOLERANCE = 1e-5
"""Largest difference of an embedding's length from 1."""


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


def calibration_of(value: Any) -> Examples:
    """At most `MAX_EXAMPLES` of any examples, evenly spaced."""
    examples = as_examples(value, "calibration", "export")
    check_not_empty("export", "calibration", examples)
    count = min(len(examples), MAX_EXAMPLES)
    rows = np.linspace(0, len(examples) - 1, count).round().astype(int)
    return examples.select(rows)


def check_embeddings(
    embeddings: FloatArray, expected: FloatArray, file_format: str
) -> None:
    """Raises `RuntimeError` unless embeddings are near those of the model.

    They must have length 1, or 0.
    """
    norms = np.linalg.norm(embeddings.astype(float), axis=1)
    largest = np.where(norms > 0.5, np.abs(norms - 1), norms).max()
    # A comparison with NaN is false, so NaN is an error, too.
    if not largest <= _UNIT_TOLERANCE:
        raise RuntimeError(
            "Embeddings of a quantized export must have length 1. Those of "
            f"its {file_format} model differ by {largest:.3g}. Nothing was "
            "written. Use another format."
        )
    distance = np.linalg.norm(embeddings - expected, axis=1).mean()
    if distance > _MAX_DISTANCE:
        raise RuntimeError(
            "Embeddings of a quantized export must be near those of the model: "
            f"at most {_MAX_DISTANCE} apart, on average. Those of its "
            f"{file_format} model are {distance:.3g} apart. Nothing was "
            "written. Use another format, or quantize=None."
        )


def write_int8(
    model: EmbeddingModel,
    spec: keras.KerasTensor,
    file_format: str,
    path: Path,
    overwrite: bool,
    calibration: Any,
) -> Path:
    """Writes a model whose network computes in 8-bit integers.

    Activations are measured on the calibration, on which the file is tried,
    too.
    """
    with new_portable(model, file_format, path, overwrite) as (new, load):
        examples = calibration_of(calibration)
        view_batches = eval_batches(examples, examples.view_for(model))
        with python_errors():
            views = np.concatenate([np.asarray(x) for x in view_batches])
        x = input_like(spec)
        features = model.backbone(x)
        outputs = {
            f"features_{i}": y
            for i, y in enumerate(keras.tree.flatten(features))
        }
        outputs[EMBEDDING] = model.head(features)[EMBEDDING]
        batches = [views[rows] for rows in blocks(len(views), _BATCH_SIZE)]
        with _quietly():
            parts = keras.Model(x, outputs)
            _WRITERS[file_format](parts, new, batches)
        trial = views[:_TRIAL_IMAGES]
        expected = keras.ops.convert_to_numpy(parts(trial)[EMBEDDING])
        check_embeddings(load(new)(trial), expected, file_format)
    return path


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Hides the progress of converters, some of which are written in C++."""
    log = logging.getLogger("nncf")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            hold_back_stderr(),
        ):
            # TensorFlow warns of a class that it uses itself.
            deprecated = r"\s+Warning: tf.lite.Interpreter is deprecated"
            warnings.filterwarnings("ignore", deprecated, UserWarning)
            yield
    finally:
        log.setLevel(level)


def _write_onnx(parts: keras.Model, path: Path, batches: Batches) -> None:
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        whole, folded = Path(folder, "whole.onnx"), Path(folder, "folded.onnx")
        write_by_keras(parts, "onnx", whole)
        # Batch normalization becomes a part of convolutions.
        quant_pre_process(whole, folded, skip_symbolic_shape=True)
        model = onnx.load(folded)
    graph = model.graph
    features = [x for x in graph.output if x.name != EMBEDDING]
    head = head_nodes(
        [x.name for x in features],
        {y: (x.name, x.input) for x in graph.node for y in x.output},
    )
    for output in features:
        graph.output.remove(output)
    name = parts.inputs[0].name
    feeds = iter([{name: x} for x in batches])
    quantization.quantize_static(
        model,
        path,
        SimpleNamespace(get_next=lambda: next(feeds, None)),
        nodes_to_exclude=head,
        per_channel=True,
        # Processors without VNNI add two products in 16 bits, in which
        # weights of more than seven bits overflow.
        reduce_range=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def _write_litert(parts: keras.Model, path: Path, batches: Batches) -> None:
    from tensorflow.lite.tools import flatbuffer_utils

    with _converter(parts) as converter:
        content = converter.convert()
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    [graph], [signature] = model.subgraphs, model.signatureDefs
    names = [x.name.decode() for x in graph.tensors]
    features = [
        names[x.tensorIndex]
        for x in signature.outputs
        if x.name.decode() != EMBEDDING
    ]
    sources = {
        names[y]: (names[x.outputs[0]], [names[i] for i in x.inputs if i >= 0])
        for x in graph.operators
        for y in x.outputs
    }
    options = tf.lite.experimental.QuantizationDebugOptions(
        denylisted_nodes=head_nodes(features, sources)
    )
    embedding = {EMBEDDING: parts.output[EMBEDDING]}
    whole = keras.Model(parts.input, embedding, name=parts.name)
    with _converter(whole) as converter:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        name = parts.inputs[0].name
        converter.representative_dataset = lambda: ({name: x} for x in batches)
        debugger = tf.lite.experimental.QuantizationDebugger(
            converter=converter,
            debug_dataset=lambda: ([x] for x in batches),
            debug_options=options,
        )
        path.write_bytes(debugger.get_nondebug_quantized_model())


@contextlib.contextmanager
def _converter(model: keras.Model) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_by_keras(model, "tf_saved_model", Path(folder))
        yield tf.lite.TFLiteConverter.from_saved_model(folder)


def _write_openvino(parts: keras.Model, path: Path, batches: Batches) -> None:
    import openvino

    nncf = import_extra("quantize='int8' of export", "nncf", "openvino")
    from nncf.quantization import advanced_parameters as advanced
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    def name(output: Any) -> str:
        node: str = output.get_node().get_friendly_name()
        return node

    program = openvino_model(parts)
    features = [x for x in program.outputs if EMBEDDING not in x.get_names()]
    sources = {
        name(y): (name(y), [name(z.get_source_output()) for z in x.inputs()])
        for x in program.get_ops()
        for y in x.outputs()
    }
    head = head_nodes([name(x) for x in features], sources)
    for output in features:
        program.remove_result(output.get_node())
    views = [x[None] for batch in batches for x in batch]
    ranges = RangeEstimatorParametersSet.MINMAX
    quantized = nncf.quantize(
        program,
        nncf.Dataset(views),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(views),
        ignored_scope=nncf.IgnoredScope(names=head, validate=False),
        # ONNX Runtime does both, too. By default, ranges end at the mean of the
        # images' extremes, which clips half of the images somewhere.
        advanced_parameters=advanced.AdvancedQuantizationParameters(
            overflow_fix=advanced.OverflowFix.ENABLE,
            activations_range_estimator_params=ranges,
        ),
    )
    openvino.save_model(quantized, path, compress_to_fp16=False)


def head_nodes(
    features: Iterable[str], sources: Mapping[str, tuple[str, Sequence[str]]]
) -> list[str]:
    """The nodes of a graph that its `features`, tensors, do not depend on.

    `sources` has, by tensor, the node that computes it and that node's inputs.
    """
    tensors, head = [*features], {node for node, _ in sources.values()}
    while tensors:
        node, inputs = sources.get(tensors.pop(), ("", ()))
        if node in head:
            head.remove(node)
            tensors += inputs
    return sorted(head)


_WRITERS = {
    "onnx": _write_onnx,
    "litert": _write_litert,
    "openvino": _write_openvino,
}
