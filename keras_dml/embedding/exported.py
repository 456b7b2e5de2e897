"""What computes without Keras, on the CPU: OpenVINO, and exported files."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from keras_dml.utils.arguments import import_extra
from keras_dml.utils.progress import stderr_held_back
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "openvino": ".xml"}
"""Formats of files that hold a model alone, and how their names end."""

Run: TypeAlias = Callable[[Any], FloatArray]
"""From a batch of the only input to the output."""

Load: TypeAlias = Callable[[Path], Run]


def loader(file_format: str, owner: str) -> Load:
    """Returns a function that loads files of a format, a key of `SUFFIXES`.

    Raises:
        ImportError: If the runtime, which `owner` needs, is not installed.
    """
    module, load = _RUNTIMES[file_format]
    runtime = import_extra(owner, module, file_format)
    return lambda path: load(runtime, os.fspath(path))


def _on_onnxruntime(onnxruntime: Any, path: str) -> Run:
    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    [x] = session.get_inputs()
    [output] = session.get_outputs()
    # As in "tensor(float)".
    name = x.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32"}.get(name, name)
    return lambda batch: session.run(
        [output.name], {x.name: np.asarray(batch, dtype)}
    )[0]


def _on_litert(litert: Any, path: str) -> Run:
    run = litert.Interpreter(
        path, num_threads=os.cpu_count()
    ).get_signature_runner()
    [(name, details)] = run.get_input_details().items()
    [output] = run.get_output_details()
    lock = Lock()

    @stderr_held_back()  # Its C++ code notes how it computes.
    def embed(batch: Any) -> FloatArray:
        with lock:
            outputs = run(**{name: np.asarray(batch, details["dtype"])})
        embeddings: FloatArray = outputs[output]
        return embeddings

    return embed


def _on_openvino(_: Any, path: str) -> Run:
    run = compiled(path)
    return lambda batch: run([batch])


_RUNTIMES: dict[str, tuple[str, Callable[[Any, str], Run]]] = {
    "onnx": ("onnxruntime", _on_onnxruntime),
    "litert": ("ai_edge_litert.interpreter", _on_litert),
    "openvino": ("openvino", _on_openvino),
}
"""Modules of the runtimes, and how they read a file."""


def converted(function: Any) -> Any:
    """A concrete function of TensorFlow as a model of OpenVINO, or raises."""
    import openvino

    with _logging_kept():
        return openvino.convert_model(function)


def compiled(
    model: Any | str | os.PathLike[str],
) -> Callable[[list[Any]], FloatArray]:
    """The first output of a model, or of a file, for arrays of its inputs.

    It is computed on the CPU, in float32; threads may share the function.
    """
    import openvino

    # Of one batch at a time, and not in bfloat16, where a CPU has it.
    how = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    program = openvino.compile_model(model, "CPU", how)
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
def _logging_kept() -> Iterator[None]:
    """Restores the root logger, which OpenVINO silences if it fails."""
    root = logging.getLogger()
    level, filters, handlers = root.level, [*root.filters], [*root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        root.filters[:], root.handlers[:] = filters, handlers
