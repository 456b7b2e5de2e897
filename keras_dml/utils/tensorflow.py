"""TensorFlow, imported when it is used.

On the backend TensorFlow, `tf` is the module, which Keras has imported. On
others it is imported with its first attribute: losses, training on arrays,
evaluation and search need none of it. A type is not worth an import, so
modules that name TensorFlow's in signatures begin with `from __future__ import
annotations`.
"""

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import keras
from keras.src.utils.module_utils import LazyModule


class _TensorFlow(LazyModule):
    """TensorFlow beside another backend, to which it leaves the GPUs."""

    def __init__(self) -> None:
        super().__init__(
            "tensorflow",
            import_error_msg=(
                "keras_dml needs TensorFlow for pipelines of tf.data, to "
                "decode and resize images, and to export and serve models. "
                "Received: an environment without it. Install it by "
                "`pip install tensorflow`, or use arrays (ArraySet), or "
                "batches of Grain or of a keras.utils.PyDataset."
            ),
        )

    def initialize(self) -> None:
        super().initialize()
        # It would take all of their memory. Too late, it has them already.
        with contextlib.suppress(RuntimeError):
            self.module.config.set_visible_devices([], "GPU")


if TYPE_CHECKING or keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:
    tf = _TensorFlow()
    if "tensorflow" in sys.modules:
        tf.initialize()


def is_dataset(value: Any) -> bool:
    """Whether a value is a `tf.data.Dataset`; does not import TensorFlow."""
    return "tensorflow" in sys.modules and isinstance(value, tf.data.Dataset)
