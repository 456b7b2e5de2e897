"""Exported files as engines, by the runtimes that they are for, on the CPU."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from keras_dml.embedding.on_openvino import compiled
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.terminal import stderr_held_back
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "openvino": ".xml"}
"""Formats of files that hold a model alone, and how their names end."""

Run: TypeAlias = Callable[[Any], FloatArray]
"""From a batch of the only input to the output."""

Load: TypeAlias = Callable[[Path], Run]


def loader(file_format: str, owner: str) -> Load:
    """What makes a function of a file of this format.

    Args:
        file_format: A key of `SUFFIXES`.
        owner: What needs the runtime.

    Raises:
        ImportError: If the runtime is not installed.
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
