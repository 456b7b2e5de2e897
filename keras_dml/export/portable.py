"""Models for ONNX Runtime and LiteRT, through Keras' own export."""

from collections.abc import Callable
from pathlib import Path

import keras

from keras_dml.data import View
from keras_dml.export.parity import check_difference
from keras_dml.export.requests import Batch
from keras_dml.export.signatures import embed
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import atomic_file
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


def free_file(path: Path, suffix: str, overwrite: bool) -> Path:
    """The file that is to be written, if it may be."""
    if path.suffix != suffix:
        raise ValueError(
            f"`path` of export must end in {suffix!r} for this format. "
            f"Received: path={str(path)!r}."
        )
    if path.is_dir() or (path.exists() and not overwrite):
        replace = "" if path.is_dir() else "overwrite=True to replace it, or "
        raise FileExistsError(
            f"`path` of export must be free. Received: path={str(path)!r}, "
            f"which exists. Use {replace}another path."
        )
    return path


def write_portable(
    model: keras.Model,
    view: View,
    file_format: str,
    path: Path,
    overwrite: bool,
    batches: list[Batch],
    tolerance: float,
) -> Path:
    """Writes what `export_model` describes as "onnx" and "litert"."""
    target = free_file(path, SUFFIXES[file_format], overwrite)
    load = _loader(file_format)
    exported = _inference_model(model, view)
    images = keras.InputSpec("float32", exported.input_shape, name="images")
    with atomic_file(target) as new:
        exported.export(
            new, format=file_format, verbose=False, input_signature=[images]
        )
        run = load(new)
        for batch in batches:
            seen = view.apply(batch).numpy()
            # Both as a batch and one at a time: the size is not fixed.
            for part in (seen, seen[:1]):
                difference = run(part) - embed(model, part).numpy()
                check_difference(difference, f"{file_format} model", tolerance)
    return target


def _inference_model(model: keras.Model, view: View) -> keras.Model:
    """A functional model from views to {"embedding": (B, D)}, float32.

    It has the layers that an embedding needs, and no objective.
    """
    seen = keras.Input((*view.size, view.channels), name="images")
    if isinstance(model, MetricModel):
        embedding = model.outputs_of(seen)["embedding"]
    else:
        embedding = model(seen)
    embedding = keras.ops.cast(embedding, "float32")
    return keras.Model(seen, {"embedding": embedding})


Run = Callable[[FloatArray], FloatArray]


def _loader(file_format: str) -> Callable[[Path], Run]:
    """What makes a function of a file of this format."""
    owner = f"format={file_format!r} of export"
    if file_format == "onnx":
        # Keras imports the former when it exports.
        import_extra(owner, "tf2onnx", "onnx")
        onnxruntime = import_extra(owner, "onnxruntime", "onnx")

        def load_onnx(path: Path) -> Run:
            session = onnxruntime.InferenceSession(
                path, providers=["CPUExecutionProvider"]
            )
            return lambda seen: session.run(["embedding"], {"images": seen})[0]

        return load_onnx
    litert = import_extra(owner, "ai_edge_litert.interpreter", "litert")

    def load_litert(path: Path) -> Run:
        run = litert.Interpreter(str(path)).get_signature_runner()
        return lambda seen: run(images=seen)["embedding"]

    return load_litert
