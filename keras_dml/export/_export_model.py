"""Export of a model for a server or a device, compared with the model."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import View
from keras_dml.export import parity
from keras_dml.export.gallery import as_gallery
from keras_dml.export.portable import SUFFIXES, write_portable
from keras_dml.export.requests import (
    generated_batches,
    given_batches,
    write_warmup,
)
from keras_dml.export.signatures import Served, write_saved_model
from keras_dml.export.versions import new_version, version_folder
from keras_dml.utils.arguments import check_choice, check_count

FORMATS = ("saved_model", *SUFFIXES)
PIXEL_DTYPES = ("float32", "uint8")


def export_model(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    format: str = "saved_model",
    gallery: Any = None,
    k: int = 10,
    threshold: float | None = None,
    input_dtype: str = "float32",
    overwrite: bool = False,
    check: Sequence[npt.NDArray[np.uint8]] = (),
    tolerance: float = 1e-5,
) -> Path:
    """Writes a model for TensorFlow Serving, ONNX Runtime or LiteRT.

    A SavedModel takes images of any size and has the test view of
    evaluation inside. Its signatures take `images` and return, for each of
    the B images,

    - "serving_default": (B, H, W, C), pixels in 0 to 255. `embedding`,
      (B, D) float32.
    - "encoded": (B,) strings, JPEG, PNG or GIF files, each of its own
      size; their EXIF orientation is applied. `embedding`, as above, and
      `status`, (B,) strings: "ok", "unsupported" (no file of these
      formats), "damaged" or "too large". Where it is not "ok" the
      embedding is zero.
    - "lookup", if there is a gallery: as "encoded". The `k` rows of the
      gallery with the highest cosines, found exactly, ties in the order of
      the gallery: `ids` and `labels`, (B, k), int64 or strings as in the
      gallery, -1 or "" where the status is not "ok"; `scores`, (B, k)
      float32, their cosines; `above_threshold`, (B, k) booleans; `status`.

    It comes with requests that warm a server up.

    ONNX and LiteRT files hold the model alone: from views, (B, H, W, C)
    float32 of the model's size, pixels in 0 to 255, named `images`, to
    `embedding`. Neither holds anything of training.

    The export is written beside its target, loaded again and compared
    with the model. Only then is it moved into place, in one step: whatever
    fails or is killed before leaves the target as it was.

    Args:
        model: A `MetricModel`, or any Keras model from one batch of gray
            or RGB images, (B, H, W, C), pixels in 0 to 255, to embeddings
            (B, D), which are exported as the model gives them.
        path: `saved_models/NAME/VERSION`, the version an integer, or
            `saved_models/NAME`, in which the next free version is used; a
            version that exists is never replaced. A file that ends in
            .onnx or .tflite for the other formats.
        format: "saved_model", "onnx" or "litert".
        gallery: A `Gallery`, an `ImageSet`, or anything with `embeddings`,
            (N, D), `labels` and perhaps `ids` and `threshold`.
        k: Neighbors for each image, at most N.
        threshold: Cosine from which on a neighbor is above the threshold;
            by default that of the gallery, if it has one, or else all are.
        input_dtype: Pixels that "serving_default" takes: "float32" or
            "uint8", a quarter of the bytes.
        overwrite: "onnx" and "litert": whether a file that is there
            already is replaced.
        check: Images, each (H, W, C) uint8, with which the export is
            compared beside generated ones of several sizes.
        tolerance: The largest difference to the model that any number of
            an embedding or score may have.

    Returns:
        The folder of the version, or the file.

    Raises:
        ValueError: If `model` or an argument is unfit.
        FileExistsError: If the target exists and may not be replaced.
        ImportError: If a package that the format needs is not installed.
        OSError: If it cannot be written, for instance because the disk is
            full.
        RuntimeError: If the export and the model differ.
    """
    view = View.of(model)
    _check_output(model)
    check_choice("export", "format", format, FORMATS)
    check_choice("export", "input_dtype", input_dtype, PIXEL_DTYPES)
    batches = [*generated_batches(view), *given_batches(check, view)]
    if format != "saved_model":
        if gallery is not None:
            raise ValueError(
                "`gallery` of export is for format='saved_model': there is "
                "no search in the other formats. Received: "
                f"format={format!r} and gallery of type "
                f"{type(gallery).__name__}."
            )
        return write_portable(
            model, view, format, Path(path), overwrite, batches, tolerance
        )
    if overwrite:
        raise ValueError(
            "`overwrite` of export is for files of the formats "
            f"{', '.join(SUFFIXES)}: a version is never replaced. Received: "
            "overwrite=True, format='saved_model'. Use "
            "path=saved_models/NAME for the next free version."
        )
    if gallery is not None:
        gallery = as_gallery(model, gallery, threshold)
        check_count("export", "k", k)
        if k > len(gallery):
            raise ValueError(
                "`k` of export must not exceed the size of the gallery. "
                f"Received: k={k}, {len(gallery)} embeddings. Use "
                f"k={len(gallery)} or fewer."
            )
    served = Served(model, view, input_dtype, gallery, k)
    target = version_folder(Path(path))
    with new_version(target) as new:
        write_saved_model(served, new)
        write_warmup(served, new, target.absolute().parent.name, batches[:2])
        parity.compare(served, new, batches, tolerance)
    return target


def _check_output(model: keras.Model) -> None:
    output = model.compute_output_spec(keras.KerasTensor(model.input_shape))
    if len(getattr(output, "shape", ())) != 2:
        raise ValueError(
            "`model` of export must return one embedding an image, (B, D). "
            f"Received: {model!r}, which returns {output}. Add for instance "
            "keras.layers.GlobalAveragePooling2D()."
        )
