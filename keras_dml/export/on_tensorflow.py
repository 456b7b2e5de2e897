"""Exports from another backend, by TensorFlow in a separate process.

Keras computes with one backend in a process. The model is saved, and this
file, run as a program, reads it again on TensorFlow, on the CPU.
"""

import importlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

MODEL, CALL, ANSWER = "model.keras", "call", "answer"

_ERRORS = (ValueError, TypeError, OSError, ImportError, RuntimeError)
"""Errors that the process returns; any other is a bug and shown in full."""


def call_on_tensorflow(
    function: Callable[..., Any], model: keras.Model, *args: Any, **kwargs: Any
) -> Any:
    """Calls a function of a model in a process with Keras on TensorFlow.

    The function is found by name, in a module. Keras must be able to save the
    model; other arguments, the result and errors are pickled.
    """
    with tempfile.TemporaryDirectory(prefix="keras-dml-export-") as name:
        folder = Path(name)
        model.save(folder / MODEL)
        with zipfile.ZipFile(folder / MODEL) as file:
            config = file.read("config.json").decode()
        # These modules register the classes that the file names.
        names = re.findall(r'"registered_name": "([^"]+)"', config)
        classes = keras.saving.get_custom_objects()
        modules = {classes[x].__module__ for x in names if x in classes}
        call = sorted(modules), function, args, kwargs
        (folder / CALL).write_bytes(pickle.dumps(call))
        process = subprocess.run(
            # Modules are found where this process finds them.
            [sys.executable, "-P", __file__, name],
            env={
                **os.environ,
                "KERAS_BACKEND": "tensorflow",
                "CUDA_VISIBLE_DEVICES": "",  # The other backend uses it.
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
        )
        if not (folder / ANSWER).exists():
            raise RuntimeError(
                "The process that exports the model on TensorFlow must end "
                f"with an answer. It ended with status {process.returncode}:\n"
                f"{process.stderr[-2000:]}"
            )
        answer = pickle.loads((folder / ANSWER).read_bytes())
    if isinstance(answer, Exception):
        raise answer
    return answer


def read_saved(path: Path, modules: list[str]) -> keras.Model:
    """Reads the model, or raises a `ValueError` that says why it cannot."""
    try:
        for module in modules:
            importlib.import_module(module)
        # It was saved a moment ago, so its Lambda layers can be trusted.
        return keras.models.load_model(path, compile=False, safe_mode=False)
    # Any error of Keras is due to a part of the model.
    except Exception as error:
        # In the message of Keras, the configuration comes first.
        why = str(error).rpartition("Exception encountered: ")[2]
        raise ValueError(
            "export reads the model in a process on TensorFlow, which must "
            f"know all of its layers. Received: {type(error).__name__}: "
            f"{why[:500]} Put your classes into a module and import "
            "them from there, not from a script or notebook. Or call "
            'model.save("model.keras"), and export it in a process with '
            "KERAS_BACKEND=tensorflow that has the classes."
        ) from None


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    modules, function, args, kwargs = pickle.loads((folder / CALL).read_bytes())
    answer: Any
    try:
        answer = function(read_saved(folder / MODEL, modules), *args, **kwargs)
    except _ERRORS as error:
        answer = error
    (folder / ANSWER).write_bytes(pickle.dumps(answer))
