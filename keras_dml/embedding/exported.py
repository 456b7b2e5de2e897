"""What computes without Keras, on the CPU: OpenVINO, and exported files."""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from keras_dml.utils.arguments import import_extra
from keras_dml.utils.terminal import stderr_held_back
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "openvino": ".xml"}
"""Formats of files that hold a model alone, and how their names end."""

Run: TypeAlias = Callable[[Any], FloatArray]
"""From a batch of the only input to the output."""

Load: TypeAlias = Callable[[Path], Run]


def loader(file_format: str, owner: str) -> Load:
    """What makes a function of a file of a format, a key of `SUFFIXES`.

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
    [given] = session.get_inputs()
    [output] = session.get_outputs()
    # As in "tensor(float)".
    name = given.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32"}.get(name, name)
    return lambda batch: session.run(
        [output.name], {given.name: np.asarray(batch, dtype)}
    )[0]


def _on_litert(litert: Any, path: str) -> Run:
    run = litert.Interpreter(
        path, num_threads=os.cpu_count()
    ).get_signature_runner()
    [(name, given)] = run.get_input_details().items()
    [output] = run.get_output_details()
    lock = Lock()

    @stderr_held_back()  # Its C++ code notes how it computes.
    def embedded(batch: Any) -> FloatArray:
        with lock:
            found: FloatArray = run(
                **{name: np.asarray(batch, given["dtype"])}
            )[output]
        return found

    return embedded


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
    """A concrete function of TensorFlow as a model of OpenVINO.

    Raises:
        ValueError: If OpenVINO does not know what it computes.
    """
    import openvino

    with _logging_kept():
        try:
            return openvino.convert_model(function)
        except Exception as error:
            said = _unknown(function.graph, str(error))
            raise ValueError(said) from error


def compiled(
    model: Any | str | os.PathLike[str],
) -> Callable[[list[Any]], FloatArray]:
    """The first output of a model, or of a file, for arrays of its inputs.

    It is computed on the CPU, in float32. Threads may share the function;
    their batches run one after another.
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
            found: FloatArray = request.infer(arrays, share_inputs=True)[0]
        return found

    return run


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """OpenVINO leaves the root logger without warnings if it fails."""
    root = logging.getLogger()
    level, filters, handlers = root.level, [*root.filters], [*root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        root.filters[:], root.handlers[:] = filters, handlers


def _unknown(graph: Any, said: str) -> str:
    """What OpenVINO says of a graph, with the names of its operations."""
    found = re.search("operations?: (.+)", said)
    if found is None:
        return said
    types = re.findall(r"\w+", found[1])
    named = [op.name for op in graph.get_operations() if op.type in types]
    return f"OpenVINO does not know {', '.join(types)}, as in {named[:3]}"
