"""TensorFlow, imported when it is used.

On the backend TensorFlow, `tf` is the module, which Keras has imported. On
others it is imported with its first attribute: losses, training on arrays,
evaluation and search need none of it. A type is not worth an import, so
modules that name TensorFlow's in signatures begin with `from __future__ import
annotations`.
"""

import contextlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

import keras
from keras.src.utils.module_utils import LazyModule


class _TensorFlow(LazyModule):
    """TensorFlow beside another backend, to which it leaves the GPUs."""

    def initialize(self) -> None:
        self.import_error_msg = (
            f"{_user()} needs TensorFlow, as do all pipelines of tf.data, what "
            "decodes and resizes images, export and serving. Received: an "
            "environment that cannot import it. Use `pip install tensorflow`, "
            "or arrays of the size that the model takes, or "
            "keras_dml.data.grain_pipeline."
        )
        super().initialize()
        # It would take all of their memory. Once it has, this raises.
        with contextlib.suppress(RuntimeError):
            self.module.config.set_visible_devices([], "GPU")


def _user() -> str:
    """The function, or module, of this package that a program has called."""
    name = __name__
    # The latter checks the call.
    skipped = __name__, "keras_dml.utils.arguments"
    for frame, _ in traceback.walk_stack(None):
        module = frame.f_globals.get("__name__", "")
        if module.startswith("keras_dml.") and module not in skipped:
            called = frame.f_code.co_qualname
            name = module if "<" in called else called
    return name


if TYPE_CHECKING or keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:
    tf = _TensorFlow("tensorflow")
    if "tensorflow" in sys.modules:
        tf.initialize()


def is_dataset(value: Any) -> bool:
    """Whether a value is a `tf.data.Dataset`; does not import TensorFlow."""
    return "tensorflow" in sys.modules and isinstance(value, tf.data.Dataset)
