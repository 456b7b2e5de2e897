"""Engines that compute embeddings: Keras, OpenVINO or an exported file."""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import is_one_of_several, on_this_process
from keras_dml.model.generated import input_specs
from keras_dml.utils.arguments import check_choice, import_extra
from keras_dml.utils.models import check_model
from keras_dml.utils.progress import hold_back_stderr
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import unit_rows

logger = logging.getLogger(__name__)

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "openvino": ".xml"}
"""Formats of files that hold only a model, and their extensions."""

Predict: TypeAlias = Callable[[Any], Any]
"""From a batch of a model's inputs to its embeddings, (B, D)."""

Load: TypeAlias = Callable[[Path], Predict]


def loader(file_format: str, owner: str) -> Load:
    """Returns a function that loads files of a format, a key of `SUFFIXES`."""
    module, load = _RUNTIMES[file_format]
    runtime = import_extra(owner, module, file_format)
    return lambda path: load(runtime, os.fspath(path))


def _on_onnxruntime(onnxruntime: Any, path: str) -> Predict:
    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    [x] = session.get_inputs()
    [output] = session.get_outputs()
    # Its type is a text such as "tensor(float)".
    name = x.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32"}.get(name, name)
    return lambda batch: session.run(
        [output.name], {x.name: np.asarray(batch, dtype)}
    )[0]


def _on_litert(litert: Any, path: str) -> Predict:
    run = litert.Interpreter(
        path, num_threads=os.cpu_count()
    ).get_signature_runner()
    [(name, details)] = run.get_input_details().items()
    [output] = run.get_output_details()
    lock = Lock()

    @hold_back_stderr()  # Its C++ code logs how it computes.
    def embed(batch: Any) -> FloatArray:
        with lock:
            outputs = run(**{name: np.asarray(batch, details["dtype"])})
        embeddings: FloatArray = outputs[output]
        return embeddings

    return embed


def _on_openvino(_: Any, path: str) -> Predict:
    run = compile_model(path)
    return lambda batch: run([batch])


_RUNTIMES: dict[str, tuple[str, Callable[[Any, str], Predict]]] = {
    "onnx": ("onnxruntime", _on_onnxruntime),
    "litert": ("ai_edge_litert.interpreter", _on_litert),
    "openvino": ("openvino", _on_openvino),
}
"""Modules of the runtimes, and functions that read a file."""


def convert(function: Any) -> Any:
    """Converts a concrete function of TensorFlow to a model of OpenVINO."""
    import openvino

    with _keep_logging():
        return openvino.convert_model(function)


def compile_model(
    model: Any | str | os.PathLike[str],
) -> Callable[[list[Any]], FloatArray]:
    """Returns a function for a model's first output, on the CPU in float32."""
    import openvino

    # Batches run one at a time, and not in bfloat16, which some CPUs have.
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    program = openvino.compile_model(model, "CPU", options)
    dtypes = [x.get_element_type().to_dtype() for x in program.inputs]
    request = program.create_infer_request()
    lock = Lock()

    def run(inputs: list[Any]) -> FloatArray:
        arrays = [*map(np.asarray, inputs, dtypes)]
        with lock:
            output: FloatArray = request.infer(arrays, share_inputs=True)[0]
        return output

    return run


@contextlib.contextmanager
def _keep_logging() -> Iterator[None]:
    """Restores the root logger, which OpenVINO silences if it fails."""
    root = logging.getLogger()
    level, filters, handlers = root.level, [*root.filters], [*root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        root.filters[:], root.handlers[:] = filters, handlers


Engine: TypeAlias = Predict | str | os.PathLike[str]
"""A function of a batch, as NumPy arrays; a name of `ENGINES`; or a file."""

KERAS, OPENVINO = ENGINES = "keras", "openvino"

_TOLERANCE = 1e-5
"""Largest difference from Keras in a component of a unit embedding."""

_LOCATION = re.compile(r"(Exception from|Check '.*' failed at) \S+")
"""A line of OpenVINO's own code, in its errors."""

_NUM_COMPARED = 8
"""Number of examples of the first batch that both engines embed."""


def check_engine(owner: str, engine: Engine) -> None:
    """Raises an error unless the argument `engine` of `owner` can be used."""
    if callable(engine):
        return
    if Path(engine).suffix not in SUFFIXES.values():
        check_choice(owner, "engine", engine, ENGINES)
        if engine == OPENVINO:
            import_extra(f'engine="openvino" of {owner}', OPENVINO, OPENVINO)
    elif not Path(engine).is_file():
        raise FileNotFoundError(
            f"`engine` of {owner} must be a function, a name or an exported "
            f"file. Received: engine={os.fspath(engine)!r}, which does not "
            "exist."
        )


def predict_function(
    model: keras.Model, engine: Engine = KERAS, owner: str = "embed"
) -> Predict:
    """Returns a function that embeds a batch on a single replica.

    The model has the weights of the first call; an exported file has its own.
    """
    check_engine(owner, engine)
    if callable(engine):
        return lambda batch: engine(keras.tree.map_structure(np.asarray, batch))
    check_model(model, owner)
    if engine == KERAS:
        return _by_keras(model)
    if engine == OPENVINO:
        return _by_openvino_or_keras(model)
    path = Path(engine)
    [file_format] = [x for x in SUFFIXES if SUFFIXES[x] == path.suffix]
    return loader(file_format, f"engine={str(path)!r} of {owner}")(path)


def by_openvino(
    model: keras.Model, batch: Any, expected: FloatArray
) -> Predict | None:
    """Returns a function that embeds by OpenVINO; None if it fails or differs.

    `expected` are the embeddings of the batch by Keras, (B, D). Threads may
    share the function; their batches run one after another, on the CPU.
    """
    try:
        predict = _compile(model)
        different = np.abs(unit_rows(predict(batch)) - unit_rows(expected))
        largest = float(different.max())
        # A comparison with NaN is false, so NaN does not pass.
        if largest <= _TOLERANCE:
            return predict
        reason = f"its embeddings differ by {largest:.2g} from those of Keras"
    # Keras can embed whatever error OpenVINO raises.
    except Exception as error:
        text = _LOCATION.sub("", str(error))
        reason = f"it cannot be converted: {' '.join(text.split())[:300]}"
    logger.warning(
        "Keras embeds with the model %r, and OpenVINO does not: %s.",
        model.name,
        reason,
    )
    return None


def _by_openvino_or_keras(model: keras.Model) -> Predict:
    """Embeds by OpenVINO if that agrees with Keras on the first examples."""
    predict: Predict | None = None
    by_keras = _by_keras(model)

    def embed(batch: Any) -> Any:
        nonlocal predict
        if predict is None:
            first = keras.tree.map_structure(lambda x: x[:_NUM_COMPARED], batch)
            expected = np.asarray(by_keras(first))
            predict = by_openvino(model, first, expected) or by_keras
        return predict(batch)

    return embed


def _compile(model: keras.Model) -> Predict:
    """Compiles a model with OpenVINO, for batches of any size."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"Keras runs on {keras.backend.backend()}, not on TensorFlow"
        )
    specs = input_specs(model)
    flat_specs = [
        tf.TensorSpec(spec.shape, spec.dtype, f"input_{i}")
        for i, spec in enumerate(keras.tree.flatten(specs))
    ]

    @partial(tf.function, input_signature=flat_specs, autograph=False)
    def embed(*flat: Any) -> Any:
        x = keras.tree.pack_sequence_as(specs, flat)
        return tf.cast(model(x, training=False), "float32")

    run = compile_model(convert(embed.get_concrete_function()))
    return lambda batch: run(keras.tree.flatten(batch))


def _by_keras(model: keras.Model) -> Predict:
    if is_one_of_several():
        embed = partial(model, training=False)
        return on_this_process(embed, model.variables)
    if strategy_of(model).num_replicas_in_sync == 1:
        predict: Predict = model.predict_on_batch
        return predict
    # Under a strategy, Keras would embed the whole batch on every replica.
    return tf.function(lambda x: model(x, training=False), autograph=False)
