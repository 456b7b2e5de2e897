"""Comparison of an export with the original model."""

from pathlib import Path

import numpy as np

from keras_dml.export.files import OK
from keras_dml.export.served import Served, embed
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import unit_rows


def compare(served: Served, folder: Path, tolerance: float) -> None:
    """Loads an export; raises `RuntimeError` if it differs from the model."""
    # On the CPU both compute alike; on a GPU, compiled and TF32 arithmetic
    # differ by more than any mistake that is looked for here.
    with tf.device("CPU:0"):
        signatures = tf.saved_model.load(str(folder)).signatures
        for name in served.signatures:
            for inputs, seen in served.samples(name):
                outputs = signatures[name](**inputs)
                status = outputs.get("status", tf.constant(OK)).numpy()
                if not np.all(status == OK.encode()):
                    raise RuntimeError(
                        "The export must decode all image files of its check. "
                        f"The signature {name!r} returned the status {status}. "
                        "Nothing was written."
                    )
                expected = embed(served.model, seen).numpy()
                values = outputs.get("embedding", outputs.get("scores"))
                if served.gallery is not None and "scores" in outputs:
                    rows = served.gallery.embeddings
                    cosines = unit_rows(expected) @ unit_rows(rows).T
                    expected = -np.sort(-cosines, axis=1)[:, : served.k]
                difference = values.numpy() - expected
                check_difference(difference, f"signature {name!r}", tolerance)


def check_difference(
    difference: FloatArray, what: str, tolerance: float
) -> None:
    """Raises `RuntimeError` unless all numbers are within the tolerance."""
    largest = np.abs(difference).max()
    # Not a number is not within the tolerance.
    if not largest <= tolerance:
        raise RuntimeError(
            f"The export must return the same numbers as the model. Its {what} "
            f"differs by {largest:.3g}, more than the `tolerance` of "
            f"{tolerance:.3g}. Nothing was written. If the model computes in "
            "half precision, use a larger `tolerance`."
        )
