"""Exports of a model for a server or a device, verified against it."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import View
from keras_dml.embedding.engines import SUFFIXES
from keras_dml.export.gallery import Gallery, as_gallery
from keras_dml.export.int8 import (
    calibration_of,
    check_quantize,
    write_int8,
)
from keras_dml.export.on_tensorflow import call_on_tensorflow
from keras_dml.export.portable import check_options, write_portable
from keras_dml.export.served import (
    INPUT,
    Batch,
    Served,
    ServedImages,
    compare,
    generated_batches,
    given_batches,
)
from keras_dml.model.generated import (
    generated_inputs,
    input_specs,
    takes_images,
)
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.files import new_folder
from keras_dml.utils.models import check_model
from keras_dml.utils.tensorflow import tf

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
    quantize: str | None = None,
    calibration: Any = None,
) -> Path:
    """Exports a model for TensorFlow Serving, ONNX Runtime, LiteRT, OpenVINO.

    A SavedModel accepts images of any size and includes the preprocessing of
    evaluation (the test view). Its signatures take `images` and return for each
    of the B images:

    - "serving_default" takes pixels from 0 to 255, (B, H, W, C), and returns
      `embedding`, (B, D) float32. If pixels were scaled to another range, it
      warns on the server's standard error.
    - "encoded" takes JPEG, PNG, GIF or plain BMP files of any size, (B,)
      strings, and applies the EXIF orientation of JPEG and PNG. It returns
      `embedding`, as above, and `status`, (B,) strings: "ok", "unsupported"
      (not one of these formats), "damaged" or "too large", which images are
      whose long side is more than 50 times the short one. Unless the status
      is "ok", the embedding is zero.
    - "lookup", if there is a gallery, takes the same as "encoded". It returns
      the `k` gallery rows with the highest cosine similarities, by comparing
      all rows in float32: `ids` and `labels`, (B, k), int64
      or strings as in the gallery, -1 or "" unless the status is "ok";
      `scores`, (B, k) float32, the cosine similarities; `above_threshold`,
      (B, k) booleans; and `status`.
    - "lookup_k", also only with a gallery, takes in addition `k`, (B,) int32,
      one value per image, from 1 to the size of the gallery, but at most 1000
      or the argument `k`, whichever is larger. Outputs have as many columns as
      the largest of these values; columns beyond an image's own k are filled as
      if its status were not "ok". Any other k results in the status "k out of
      range".

    If the model does not take images, its signatures "serving_default" and,
    with a gallery, "lookup" and "lookup_k" take the model's inputs by name, or
    a single one called `inputs`. There is no "encoded", and only "lookup_k"
    returns a status. If an input is called `k`, there is no "lookup_k" either.

    Files of the other formats hold the model alone. It takes `images` of the
    model's own size, (B, H, W, C) float32, pixels from 0 to 255, and returns
    `embedding`. Parts that are only needed for training are left out, and mixed
    precision becomes float32. OpenVINO has its weights in a second file, which
    ends in .bin.

    The export is written next to its target, loaded again and compared with the
    model. Only then is it moved into place, in one atomic step. If anything
    fails or is killed before that, the target is left unchanged.

    On another backend, the model is saved, and a separate process reads it on
    TensorFlow and exports it. Layers of your own must then be in a module.

    Args:
        model: A `MetricModel`, or any Keras model that returns embeddings, (B,
            D), which are exported as they are. It takes a batch of gray or RGB
            images, (B, H, W, C), with pixels from 0 to 255; or other arrays, or
            a dict of arrays.
        path: For a SavedModel, `saved_models/NAME/VERSION` with an integer
            version, or `saved_models/NAME` for the next free version; an
            existing version is never replaced. For the other formats, a file
            name that ends in .onnx, .tflite or .xml, as that of a SavedModel
            must not.
        format: "saved_model", "onnx", "litert" or "openvino".
        gallery: A `Gallery`, an `ImageSet` or `ArraySet`, or anything with
            `embeddings`, (N, D), `labels` and perhaps `ids` and `threshold`.
        k: Number of neighbors that "lookup" returns for each image, at most the
            size of the gallery, N.
        threshold: The cosine similarity from which a neighbor counts as above
            the threshold; by default, that of the gallery. If there is none,
            all neighbors count.
        input_dtype: Type of the pixels that "serving_default" takes: "float32",
            or "uint8" for requests of a quarter of the size.
        overwrite: For the other formats, whether to replace an existing file.
        check: Images, each (H, W, C) uint8, on which to compare the export with
            the model, in addition to generated images of several sizes.
        tolerance: The largest difference from the model allowed in any
            component of an embedding or in any score.
        quantize: "int8": the backbone of a `MetricModel` computes in 8-bit
            integers, and its head, with pooling and unit length, in float32.
            Such a file is an approximation: its embeddings of 32 images must
            be at most 0.25 from the model's, on average; `evaluation.compare`
            says what it costs. Not for "saved_model".
        calibration: With `quantize`, training images on which the ranges of
            activations are measured, as an `ImageSet` or other `Examples`,
            or uint8 pixels. At most 300 are used, evenly spaced.

    Returns:
        The folder of the version, or the path of the file.

    Raises:
        ValueError: If `model` or another argument is invalid, or the process on
            TensorFlow cannot read the model.
        FileExistsError: If the target exists and may not be replaced.
        ImportError: If a package required by the format is not installed.
        OSError: If the export cannot be written, for instance because the disk
            is full.
        RuntimeError: If the export and the model differ, or embeddings of a
            quantized export do not have unit length.
    """
    check_choice("export", "format", format, FORMATS)
    check_choice("export", "input_dtype", input_dtype, PIXEL_DTYPES)
    check_model(model, "export")
    check_quantize(model, format, quantize, calibration)
    check_options(format, gallery, overwrite, path)
    images = takes_images(model)
    if not images and (check or input_dtype != "float32"):
        raise ValueError(
            "`check` and `input_dtype` of export must only be given for "
            f"models that take images. Received: {model!r}, which does "
            "not. Leave them out."
        )
    view = View.of(model) if images else None
    dim = _dim_of(model, images)
    if gallery is not None:
        gallery = as_gallery(model, gallery, threshold)
        _check_gallery(gallery, k, dim)
    if keras.backend.backend() != "tensorflow":
        exported: Path = call_on_tensorflow(
            export_model,
            model,
            Path(path),
            format=format,
            # A copy does not refer to the model.
            gallery=None if gallery is None else replace(gallery),
            k=k,
            input_dtype=input_dtype,
            overwrite=overwrite,
            check=check,
            tolerance=tolerance,
            quantize=quantize,
            calibration=None
            if calibration is None
            else calibration_of(calibration),
        )
        return exported
    batches: list[Batch] = []
    if view is not None:
        batches = [*generated_batches(view), *given_batches(check, view)]
    if format != "saved_model":
        samples: Iterable[Any]
        if view is None:
            spec = input_specs(model)
            is_tensor = isinstance(spec, keras.KerasTensor)
            if not is_tensor or spec.dtype == "string":
                raise ValueError(
                    "`model` of export must have a single numeric input for "
                    f"format={format!r}. Received: {spec}. Use "
                    "format='saved_model'."
                )
            spec = keras.KerasTensor(spec.shape, spec.dtype, name=INPUT)
            samples = (generated_inputs(model),)
        else:
            shape = (None, *view.size, view.channels)
            spec = keras.KerasTensor(shape, "float32", name="images")
            samples = (view.apply(batch).numpy() for batch in batches)
        file = Path(path)
        if quantize is not None:
            return write_int8(model, spec, format, file, overwrite, calibration)
        return write_portable(
            model, spec, format, file, overwrite, samples, tolerance
        )
    served = (
        Served(model, gallery, k)
        if view is None
        else ServedImages(model, gallery, k, view, input_dtype, batches)
    )
    target = version_folder(Path(path))
    with new_folder(target) as new:
        served.write(new)
        compare(served, new, tolerance)
    return target


def version_folder(path: Path) -> Path:
    """The folder of NAME/VERSION, or of the next version of NAME.

    A server loads the last of NAME/1, NAME/2, …, and ignores hidden folders. An
    existing version is never changed, since a server may be using it.
    """

    def is_version(folder: Path) -> bool:
        return re.fullmatch("[0-9]+", folder.name) is not None

    if not is_version(path):
        versions = path.iterdir() if path.exists() else ()
        numbers = [int(x.name) for x in versions if is_version(x)]
        return path / str(max(numbers, default=0) + 1)
    if path.exists():
        raise FileExistsError(
            "`path` of export must be a new version. Received: "
            f"path={str(path)!r}, which exists. Use path={str(path.parent)!r} "
            "for the next free version."
        )
    return path


def _check_gallery(gallery: Gallery, k: int, dim: int) -> None:
    gallery_dim = gallery.embeddings.shape[1]
    if gallery_dim != dim:
        raise ValueError(
            "`gallery` of export must hold embeddings of the model. Received: "
            f"{gallery_dim} dimensions, but the model has {dim}. Use "
            "Gallery.of(model, images)."
        )
    check_count("export", "k", k)
    if k > len(gallery):
        raise ValueError(
            "`k` of export must not exceed the size of the gallery. "
            f"Received: k={k}, {len(gallery)} embeddings. Use "
            f"k={len(gallery)} or fewer."
        )


def _dim_of(model: keras.Model, images: bool) -> int:
    """The length of a model's embeddings, D."""
    if images:
        output = model.compute_output_spec(keras.KerasTensor(model.input_shape))
    else:
        x = keras.tree.map_structure(tf.constant, generated_inputs(model))
        output = model(x, training=False)
    shape: Any = getattr(output, "shape", ())
    if len(shape) != 2:
        what = "image" if images else "example"
        raise ValueError(
            f"`model` of export must return one embedding per {what}, (B, D). "
            f"Received: {model!r}, which returns {type(output).__name__} of "
            f"shape {tuple(shape)}. Add for instance "
            "keras.layers.GlobalAveragePooling2D()."
        )
    return int(shape[1])
