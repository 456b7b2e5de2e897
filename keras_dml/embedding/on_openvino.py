"""OpenVINO: models of TensorFlow as its own, and what they compute."""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from keras_dml.utils.types import FloatArray


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
