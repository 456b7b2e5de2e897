"""Models for ONNX Runtime and LiteRT, through Keras' own export."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras

from keras_dml.export.parity import check_difference
from keras_dml.export.served import embed
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import atomic_file
from keras_dml.utils.stderr import stderr_held_back
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


def check_options(format: str, gallery: Any, overwrite: bool) -> None:
    """Raises `ValueError` for options of another format; nothing is loaded."""
    if format != "saved_model" and gallery is not None:
        raise ValueError(
            "`gallery` of export must only be given for format='saved_model', "
            "because the other formats do not support search. Received: "
            f"format={format!r} and a gallery of type {type(gallery).__name__}."
        )
    if format == "saved_model" and overwrite:
        raise ValueError(
            "`overwrite` of export must only be given for the formats "
            f"{', '.join(SUFFIXES)}, because a version of a SavedModel is "
            "never replaced. Received: overwrite=True, format='saved_model'. "
            "Use path=saved_models/NAME, where it becomes the next version."
        )


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
            "`path` of export must not exist yet. Received: "
            f"path={str(path)!r}, which exists. Use {replace}another path."
        )
    return path


def write_portable(
    model: keras.Model,
    spec: keras.KerasTensor,
    file_format: str,
    path: Path,
    overwrite: bool,
    samples: Iterable[FloatArray],
    tolerance: float,
) -> Path:
    """Writes what `export_model` describes as "onnx" and "litert".

    The model's input is like `spec`, has its name, and is tried on samples.
    """
    target = free_file(path, SUFFIXES[file_format], overwrite)
    load = _loader(file_format, spec.name)
    exported = _inference_model(model, spec)
    signature = keras.InputSpec(spec.dtype, spec.shape, name=spec.name)
    with atomic_file(target) as new, warnings.catch_warnings():
        # Of tf2onnx, which looks for names of an earlier NumPy.
        warnings.filterwarnings("ignore", "In the future `np", FutureWarning)
        exported.export(
            new, format=file_format, verbose=False, input_signature=[signature]
        )
        run = load(new)
        for seen in samples:
            # Both as a batch and one at a time: the size is not fixed.
            for part in (seen, seen[:1]):
                difference = run(part) - embed(model, part).numpy()
                check_difference(difference, f"{file_format} model", tolerance)
    return target


def _inference_model(
    model: keras.Model, spec: keras.KerasTensor
) -> keras.Model:
    """A functional model from its input to {"embedding": (B, D)}, float32.

    It has the layers that an embedding needs, and no objective.
    """
    seen = keras.Input(batch_shape=spec.shape, dtype=spec.dtype, name=spec.name)
    if isinstance(model, MetricModel):
        embedding = model.outputs_of(seen)["embedding"]
    else:
        embedding = model(seen)
    embedding = keras.ops.cast(embedding, "float32")
    return keras.Model(seen, {"embedding": embedding})


Run = Callable[[FloatArray], FloatArray]


def _loader(file_format: str, name: str) -> Callable[[Path], Run]:
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
            return lambda seen: session.run(["embedding"], {name: seen})[0]

        return load_onnx
    litert = import_extra(owner, "ai_edge_litert.interpreter", "litert")

    def load_litert(path: Path) -> Run:
        run = litert.Interpreter(str(path)).get_signature_runner()

        @stderr_held_back()  # Its C++ code notes how it computes.
        def embedded(seen: FloatArray) -> FloatArray:
            found: FloatArray = run(**{name: seen})["embedding"]
            return found

        return embedded

    return load_litert
