"""Models for ONNX Runtime, LiteRT and OpenVINO, each in a file."""

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras

from keras_dml.embedding.engines import SUFFIXES, Load, convert, loader
from keras_dml.export.served import check_difference, embed
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import atomic_file, sync
from keras_dml.utils.models import computing_in_float32, input_like
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray

_OTHER_FILES = (".keras", ".h5", ".pb", ".bin", ".zip")
"""Extensions of files that are neither a SavedModel nor another export."""


def check_options(
    format: str, gallery: Any, overwrite: bool, path: str | os.PathLike[str]
) -> None:
    """Raises `ValueError` for options, or a path, of another format."""
    ending = Path(path).suffix.lower()
    formats = [name for name, suffix in SUFFIXES.items() if suffix == ending]
    if format == "saved_model" and (formats or ending in _OTHER_FILES):
        way_out = f"format={formats[0]!r}" if formats else "model.save(path)"
        raise ValueError(
            "`path` of export must be a folder for format='saved_model'. "
            f"Received: path={os.fspath(path)!r}. Use {way_out}."
        )
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
    """The file to write, if it and OpenVINO's weights may be written."""
    if path.suffix != suffix:
        raise ValueError(
            f"`path` of export must end in {suffix!r} for this format. "
            f"Received: path={str(path)!r}."
        )
    for existing in _files(path):
        if existing.is_dir() or (existing.exists() and not overwrite):
            replace = "overwrite=True to replace it, or "
            raise FileExistsError(
                "`path` of export must not exist yet. Received: "
                f"path={str(path)!r}, and {str(existing)!r} exists. Use "
                f"{'' if existing.is_dir() else replace}another path."
            )
    return path


def _files(path: Path) -> list[Path]:
    """The files of an export; OpenVINO has its weights in a second one."""
    is_openvino = path.suffix == SUFFIXES["openvino"]
    return [path, path.with_suffix(".bin")] if is_openvino else [path]


@contextlib.contextmanager
def new_export(target: Path) -> Iterator[Path]:
    """Like `atomic_file`, also for OpenVINO's weights, which come first."""
    with atomic_file(target) as new:
        weights = list(zip(_files(new), _files(target), strict=True))[1:]
        try:
            yield new
            for written, final in weights:
                sync(written)
                os.replace(written, final)
        finally:
            for written, _ in weights:
                written.unlink(missing_ok=True)


@contextlib.contextmanager
def new_portable(
    model: keras.Model, file_format: str, path: Path, overwrite: bool
) -> Iterator[tuple[Path, Load]]:
    """A new file, renamed to `path` at the end, and its loader.

    Meanwhile, the model computes in float32.
    """
    target = free_file(path, SUFFIXES[file_format], overwrite)
    owner = f"format={file_format!r} of export"
    if file_format == "onnx":
        import_extra(owner, "tf2onnx", "onnx")  # Keras exports with it.
    load = loader(file_format, owner)
    with (
        new_export(target) as new,
        # Converters do not support bfloat16, or mix it with float16.
        computing_in_float32(model),
        warnings.catch_warnings(),
    ):
        # tf2onnx looks for names of an earlier NumPy.
        warnings.filterwarnings("ignore", "In the future `np", FutureWarning)
        yield new, load


def write_portable(
    model: keras.Model,
    spec: keras.KerasTensor,
    file_format: str,
    path: Path,
    overwrite: bool,
    samples: Iterable[FloatArray],
    tolerance: float,
) -> Path:
    """Writes the formats "onnx", "litert" and "openvino" of `export_model`.

    The model's input is like `spec` and has its name. It is tried on samples.
    """
    with new_portable(model, file_format, path, overwrite) as (new, load):
        x = input_like(spec)
        # The objective, which embeddings do not need, is left out.
        is_ours = isinstance(model, MetricModel)
        embedding = model.outputs_of(x)["embedding"] if is_ours else model(x)
        embedding = keras.ops.cast(embedding, "float32")
        inference_model = keras.Model(x, {"embedding": embedding})
        if file_format == "openvino":
            import openvino

            program = openvino_model(inference_model)
            openvino.save_model(program, new, compress_to_fp16=False)
        else:
            write_by_keras(inference_model, file_format, new)
        run = load(new)
        for sample in samples:
            # Both a batch and one example must work: the size is not fixed.
            for part in (sample, sample[:1]):
                difference = run(part) - embed(model, part).numpy()
                check_difference(difference, f"{file_format} model", tolerance)
    return path


def openvino_model(model: keras.Model) -> Any:
    """A functional model as one of OpenVINO, with the names of its tensors."""
    [spec] = model.inputs
    function = tf.function(
        lambda x: model(x, training=False),
        [tf.TensorSpec(spec.shape, spec.dtype, spec.name)],
        autograph=False,
    )
    program = convert(function.get_concrete_function())
    program.inputs[0].get_tensor().set_names({spec.name})
    for output in program.outputs:
        [name] = {*model.output} & output.get_names()
        output.get_tensor().set_names({name})
    return program


def write_by_keras(model: keras.Model, file_format: str, path: Path) -> None:
    """Writes a functional model of one input, which keeps its name."""
    [spec] = model.inputs
    signature = keras.InputSpec(spec.dtype, spec.shape, name=spec.name)
    model.export(
        path, format=file_format, verbose=False, input_signature=[signature]
    )
