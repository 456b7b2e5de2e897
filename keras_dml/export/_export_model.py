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
from keras_dml.export.arrays import (
    ONLY,
    ServedArrays,
    check_embeds,
    compare_arrays,
    write_arrays,
)
from keras_dml.export.gallery import Gallery, as_gallery
from keras_dml.export.portable import SUFFIXES, write_portable
from keras_dml.export.requests import (
    generated_batches,
    given_batches,
    write_warmup,
)
from keras_dml.export.signatures import Served, write_saved_model
from keras_dml.export.versions import new_version, version_folder
from keras_dml.model.generated import (
    generated_inputs,
    input_specs,
    takes_images,
)
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
    - "encoded": (B,) strings, JPEG, PNG, GIF, WebP or plain BMP files, each
      of its own size; their EXIF orientation is applied. `embedding`, as
      above, and `status`, (B,) strings: "ok", "unsupported" (no file of
      these formats), "damaged" or "too large". Where it is not "ok" the
      embedding is zero.
    - "lookup", if there is a gallery: as "encoded". The `k` rows of the
      gallery with the highest cosines, found exactly, ties in the order of
      the gallery: `ids` and `labels`, (B, k), int64 or strings as in the
      gallery, -1 or "" where the status is not "ok"; `scores`, (B, k)
      float32, their cosines; `above_threshold`, (B, k) booleans; `status`.
    - "lookup_k", beside it: it also takes `k`, (B,) int32, for each image
      its own, from 1 to the size of the gallery, but at most 1000 or the
      argument `k`, whichever is larger. Outputs have as many columns as the
      largest of them; beyond its own k an image has what it has where the
      status is not "ok". Any other k gets the status "k out of range".

    It comes with requests that warm a server up.

    A model that takes no images is served what it takes: its signatures
    "serving_default" and, with a gallery, "lookup" and "lookup_k" have its
    inputs by their names, or one called `inputs`; there is no "encoded", and
    a status in "lookup_k" only. If an input is called `k`, there is no
    "lookup_k" either.

    ONNX and LiteRT files hold the model alone: from views, (B, H, W, C)
    float32 of the model's size, pixels in 0 to 255, named `images`, to
    `embedding`. Neither holds anything of training.

    The export is written beside its target, loaded again and compared
    with the model. Only then is it moved into place, in one step: whatever
    fails or is killed before leaves the target as it was.

    Args:
        model: A `MetricModel`, or any Keras model to embeddings, (B, D),
            which are exported as the model gives them: from one batch of gray
            or RGB images, (B, H, W, C), pixels in 0 to 255; or from other
            arrays, or a dict of them.
        path: `saved_models/NAME/VERSION`, the version an integer, or
            `saved_models/NAME`, in which the next free version is used; a
            version that exists is never replaced. A file that ends in
            .onnx or .tflite for the other formats.
        format: "saved_model", "onnx" or "litert".
        gallery: A `Gallery`, an `ImageSet` or `ArraySet`, or anything with
            `embeddings`, (N, D), `labels` and perhaps `ids` and `threshold`.
        k: Neighbors that "lookup" finds for each image, at most N, the size
            of the gallery.
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
    check_choice("export", "format", format, FORMATS)
    check_choice("export", "input_dtype", input_dtype, PIXEL_DTYPES)
    _check_options(format, gallery, overwrite)
    if not takes_images(model):
        if check or input_dtype != "float32":
            raise ValueError(
                "`check` and `input_dtype` of export are for models of "
                f"images. Received: {model!r}, which takes none. Leave them "
                "out."
            )
        return _export_arrays(
            model, path, format, gallery, k, threshold, overwrite, tolerance
        )
    view = View.of(model)
    _check_output(model)
    batches = [*generated_batches(view), *given_batches(check, view)]
    if format != "saved_model":
        shape = (None, *view.size, view.channels)
        spec = keras.KerasTensor(shape, "float32", name="images")
        seen = (view.apply(batch).numpy() for batch in batches)
        return write_portable(
            model, spec, format, Path(path), overwrite, seen, tolerance
        )
    if gallery is not None:
        gallery = as_gallery(model, gallery, threshold)
        _check_k(k, gallery)
    served = Served(model, view, input_dtype, gallery, k)
    target = version_folder(Path(path))
    with new_version(target) as new:
        write_saved_model(served, new)
        write_warmup(served, new, target.absolute().parent.name, batches[:2])
        parity.compare(served, new, batches, tolerance)
    return target


def _export_arrays(
    model: keras.Model,
    path: str | os.PathLike[str],
    format: str,
    gallery: Any,
    k: int,
    threshold: float | None,
    overwrite: bool,
    tolerance: float,
) -> Path:
    """Exports a model that takes no images."""
    dim = check_embeds(model)
    if format != "saved_model":
        spec = _only_numbers(model, format)
        samples = (generated_inputs(model),)
        return write_portable(
            model, spec, format, Path(path), overwrite, samples, tolerance
        )
    if gallery is not None:
        gallery = as_gallery(model, gallery, threshold, dim)
        _check_k(k, gallery)
    served = ServedArrays(model, gallery, k)
    target = version_folder(Path(path))
    with new_version(target) as new:
        write_arrays(served, new, target.absolute().parent.name)
        compare_arrays(served, new, tolerance)
    return target


def _only_numbers(model: keras.Model, format: str) -> keras.KerasTensor:
    """The only input of a model, which must be numbers."""
    spec = input_specs(model)
    if not isinstance(spec, keras.KerasTensor) or spec.dtype == "string":
        raise ValueError(
            f"`model` of export must have one input of numbers for format="
            f"{format!r}. Received: {spec}. Use format='saved_model'."
        )
    return keras.KerasTensor(spec.shape, spec.dtype, name=ONLY)


def _check_options(format: str, gallery: Any, overwrite: bool) -> None:
    if format != "saved_model" and gallery is not None:
        raise ValueError(
            "`gallery` of export is for format='saved_model': there is "
            "no search in the other formats. Received: "
            f"format={format!r} and gallery of type "
            f"{type(gallery).__name__}."
        )
    if format == "saved_model" and overwrite:
        raise ValueError(
            "`overwrite` of export is for files of the formats "
            f"{', '.join(SUFFIXES)}: a version is never replaced. Received: "
            "overwrite=True, format='saved_model'. Use "
            "path=saved_models/NAME for the next free version."
        )


def _check_k(k: int, gallery: Gallery) -> None:
    check_count("export", "k", k)
    if k > len(gallery):
        raise ValueError(
            "`k` of export must not exceed the size of the gallery. "
            f"Received: k={k}, {len(gallery)} embeddings. Use "
            f"k={len(gallery)} or fewer."
        )


def _check_output(model: keras.Model) -> None:
    output = model.compute_output_spec(keras.KerasTensor(model.input_shape))
    if len(getattr(output, "shape", ())) != 2:
        raise ValueError(
            "`model` of export must return one embedding per image, (B, D). "
            f"Received: {model!r}, which returns {output}. Add for instance "
            "keras.layers.GlobalAveragePooling2D()."
        )
