"""Models for ONNX Runtime and LiteRT, through Keras' own export."""

from collections.abc import Callable
from pathlib import Path

import keras

from keras_dml.data import View
from keras_dml.export.parity import check_difference
from keras_dml.export.requests import Batch
from keras_dml.export.signatures import embed
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.types import FloatArray

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


def free_file(path: Path, suffix: str, overwrite: bool) -> Path:
    """The file that is to be written.

    Raises:
        ValueError: If it has another suffix.
        FileExistsError: If it exists and may not be replaced.
    """
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
    model: keras.Model, view: View, file_format: str, path: Path
) -> None:
    """Writes what `export` describes as "onnx" and "litert".

    Raises:
        ImportError: If a package that the format needs is missing.
    """
    _runner(file_format)
    exported = inference_model(model, view)
    images = keras.InputSpec("float32", exported.input_shape, name="images")
    exported.export(
        path, format=file_format, verbose=False, input_signature=[images]
    )


def inference_model(model: keras.Model, view: View) -> keras.Model:
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


def compare_portable(
    model: keras.Model,
    view: View,
    file_format: str,
    path: Path,
    batches: list[Batch],
    tolerance: float,
) -> None:
    """Runs an export and compares it with the model.

    Raises:
        RuntimeError: If they differ.
    """
    run = _runner(file_format)(path)
    for batch in batches:
        seen = view.apply(batch).numpy()
        # Both as a batch and one at a time: the size is not fixed.
        for part in (seen, seen[:1]):
            difference = run(part) - embed(model, part).numpy()
            check_difference(difference, f"{file_format} model", tolerance)


Run = Callable[[FloatArray], FloatArray]


def _runner(file_format: str) -> Callable[[Path], Run]:
    try:
        return _RUNNERS[file_format]()
    except ImportError as error:
        raise ImportError(
            f"format={file_format!r} of export needs the package "
            f"{error.name!r}, which is not installed. Use pip install "
            f"'keras-dml[{file_format}]'."
        ) from error


def _onnx_runner() -> Callable[[Path], Run]:
    import onnxruntime
    import tf2onnx  # noqa: F401  Keras imports it when it exports.

    def load(path: Path) -> Run:
        session = onnxruntime.InferenceSession(
            path, providers=["CPUExecutionProvider"]
        )
        return lambda seen: session.run(["embedding"], {"images": seen})[0]

    return load


def _litert_runner() -> Callable[[Path], Run]:
    from ai_edge_litert.interpreter import Interpreter

    def load(path: Path) -> Run:
        run = Interpreter(str(path)).get_signature_runner()
        return lambda seen: run(images=seen)["embedding"]

    return load


_RUNNERS = {"onnx": _onnx_runner, "litert": _litert_runner}
