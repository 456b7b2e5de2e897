"""Export to TensorFlow Serving, checked before it lands."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.data import View
from keras_dml.data.decode import decode_contents
from keras_dml.types import FloatArray, Tensor

PIXEL_DTYPES = ("float32", "uint8")


def export(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    input_dtype: str = "float32",
    check: Sequence[npt.NDArray[np.uint8]] = (),
    tolerance: float = 1e-5,
) -> Path:
    """Writes a SavedModel for TensorFlow Serving.

    It takes images of any size and has the test view of evaluation
    inside; it holds what an embedding needs and nothing of training. The
    signatures "float32" and "uint8" take `images`, (B, H, W, C), pixels
    in 0 to 255; "encoded" takes `images`, (B,), bytes of JPEG or PNG
    files, each of its own size; "serving_default" is one of the first
    two. All return `{"embedding": (B, D)}`, float32.

    The export is written beside its target, loaded again and compared
    with the model. Only then is it renamed into place: whatever fails
    before leaves the target as it was, and nothing else behind.

    Args:
        model: A `MetricModel`, or any Keras model from one batch of gray
            or RGB images, (B, H, W, C), pixels in 0 to 255, to embeddings
            (B, D), which are exported as the model gives them.
        path: `saved_models/NAME/VERSION`, the version an integer, or
            `saved_models/NAME`, in which the next free version is used.
        overwrite: Whether an export that is there already is replaced.
        input_dtype: Pixels that "serving_default" takes: "float32", which
            is what numbers in JSON fit, or "uint8".
        check: Images, each (H, W, C) uint8, with which the export is
            compared beside generated ones of several sizes.
        tolerance: The largest difference to the model that any number of
            an embedding may have.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If `model`, `input_dtype` or `check` is unfit.
        FileExistsError: If the target exists and may not be replaced.
        OSError: If it cannot be written, for instance because the disk is
            full.
        RuntimeError: If the export and the model differ.
    """
    view = View.of(model)
    _check_output(model)
    if input_dtype not in PIXEL_DTYPES:
        raise ValueError(
            f"`input_dtype` of export must be one of {PIXEL_DTYPES}. "
            f"Received: input_dtype={input_dtype!r}."
        )
    batches = [*_generated_batches(view), *_given_batches(check, view)]
    target = _version_folder(Path(path), overwrite)
    # On the same file system, where renaming is atomic, and not among the
    # integers that TensorFlow Serving looks for.
    beside = next(x for x in target.absolute().parents if x.exists())
    with tempfile.TemporaryDirectory(prefix=".export-", dir=beside) as staging:
        new = Path(staging, "new")
        _write(model, view, input_dtype, new)
        _compare(model, view, new, batches, tolerance)
        if overwrite and target.exists():
            _exchange(target, new, old=Path(staging, "old"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Fails where another process has exported meanwhile.
            new.rename(target)
    return target


# Arguments.


def _check_output(model: keras.Model) -> None:
    output = model.compute_output_spec(keras.KerasTensor(model.input_shape))
    if len(getattr(output, "shape", ())) != 2:
        raise ValueError(
            "`model` of export must return one embedding an image, (B, D). "
            f"Received: {model!r}, which returns {output}. Add for instance "
            "keras.layers.GlobalAveragePooling2D()."
        )


def _version_folder(path: Path, overwrite: bool) -> Path:
    if not _is_version(path):
        versions = path.iterdir() if path.exists() else ()
        taken = [int(x.name) for x in versions if _is_version(x)]
        return path / str(max(taken, default=0) + 1)
    is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    is_export = tf.saved_model.contains_saved_model(str(path))
    if is_free or (is_export and overwrite):
        return path
    replace = "overwrite=True to replace it, " if is_export else ""
    raise FileExistsError(
        f"`path` of export must be free. Received: path={str(path)!r}, which "
        f"exists. Use {replace}another version, or path={str(path.parent)!r} "
        "for the next free version."
    )


def _is_version(path: Path) -> bool:
    return re.fullmatch("[0-9]+", path.name) is not None


# Writing.


def _write(
    model: keras.Model, view: View, input_dtype: str, folder: Path
) -> None:
    shape = (*view.size, view.channels)

    # One function, so that the endpoints share one graph of the model.
    @tf.function(
        input_signature=[tf.TensorSpec((None, *shape), "float32")],
        autograph=False,
    )
    def embed_seen(seen: Tensor) -> dict[str, Tensor]:
        return _embed(model, seen)

    def embed(images: Tensor) -> dict[str, Tensor]:
        return embed_seen(view.apply(images))

    def embed_encoded(images: Tensor) -> dict[str, Tensor]:
        # As in evaluation, the view makes the channels that the model takes.
        seen = tf.map_fn(
            lambda contents: view.apply(decode_contents(contents)),
            images,
            fn_output_signature=tf.TensorSpec(shape, "float32"),
        )
        return embed_seen(seen)

    # Endpoints bring the variables that they use, and only those. To
    # track the model would ship the weights of its objective too.
    archive = keras.export.ExportArchive()
    # The first endpoint is "serving_default" as well.
    for dtype in sorted(PIXEL_DTYPES, key=lambda x: x != input_dtype):
        pixels = tf.TensorSpec(
            (None, None, None, view.channels), dtype, name="images"
        )
        archive.add_endpoint(dtype, embed, [pixels])
    files = tf.TensorSpec((None,), "string", name="images")
    archive.add_endpoint("encoded", embed_encoded, [files])
    try:
        archive.write_out(str(folder), verbose=False)
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def _embed(model: keras.Model, seen: Tensor) -> dict[str, Tensor]:
    return {"embedding": tf.cast(model(seen, training=False), "float32")}


def _exchange(target: Path, new: Path, old: Path) -> None:
    try:
        target.rename(old)
        new.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise


# Comparison with the model.


def _generated_batches(view: View) -> Iterator[npt.NDArray[np.uint8]]:
    # Coarse blocks, because fine noise averages out to gray in the view.
    blocks = np.random.default_rng(0).integers(
        256, size=(2, 5, 5, view.channels), dtype=np.uint8
    )
    h, w = view.size
    for height, width in ((h, w), (2 * h + 1, 3 * w), (h // 2 + 1, w // 3 + 1)):
        rows = np.arange(height) * 5 // height
        columns = np.arange(width) * 5 // width
        yield blocks[:, rows][:, :, columns]


def _given_batches(
    images: Sequence[npt.NDArray[np.uint8]], view: View
) -> Iterator[npt.NDArray[np.uint8]]:
    for i, image in enumerate(images):
        fits = image.ndim == 3 and image.shape[-1] == view.channels
        if not (fits and image.dtype == np.uint8):
            raise ValueError(
                "`check` of export must hold uint8 images of shape "
                f"(H, W, {view.channels}). Received: check[{i}] with "
                f"shape={image.shape}, dtype={image.dtype}."
            )
        yield image[None]


def _compare(
    model: keras.Model,
    view: View,
    folder: Path,
    batches: list[npt.NDArray[np.uint8]],
    tolerance: float,
) -> None:
    # On the CPU both compute alike; on a GPU, compiled and TF32 arithmetic
    # differ by more than any mistake that is looked for here.
    with tf.device("CPU:0"):
        signatures = tf.saved_model.load(str(folder)).signatures
        for name, signature in signatures.items():
            for images, seen in _requests(name, signature, batches, view):
                expected = _embed(model, seen)["embedding"].numpy()
                served = signature(images=images)["embedding"].numpy()
                _check_difference(served - expected, name, tolerance)


def _requests(
    name: str,
    signature: Any,
    batches: list[npt.NDArray[np.uint8]],
    view: View,
) -> Iterator[tuple[Tensor, Tensor]]:
    if name == "encoded":
        files = [tf.io.encode_png(image) for x in batches for image in x]
        yield tf.stack(files), tf.concat([view.apply(x) for x in batches], 0)
        return
    dtype = signature.structured_input_signature[1]["images"].dtype
    for batch in batches:
        yield tf.cast(batch, dtype), view.apply(batch)


def _check_difference(
    difference: FloatArray, name: str, tolerance: float
) -> None:
    largest = np.abs(difference).max()
    # Not a number is not within the tolerance.
    if not largest <= tolerance:
        raise RuntimeError(
            "The export must give the embeddings of the model. Its signature "
            f"{name!r} differs by {largest:.3g}, and `tolerance` is "
            f"{tolerance:.3g}. Nothing was written. If the model computes in "
            "half precision, use a larger `tolerance`."
        )
