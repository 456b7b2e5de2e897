"""Teacher: a trained model whose embeddings another model learns from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_dml.data.feature_set import are_features
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.models import read_model
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor

Source: TypeAlias = str | os.PathLike[str] | keras.Model
"""A teacher, or where to read it."""

_SAVED_MODEL = "saved_model.pb"


class Teacher:
    """A frozen model that embeds the inputs of another one.

    It is not a Keras layer, so that the model which learns from it neither
    trains it nor saves or exports its weights.

    Args:
        source: A `MetricModel` or another Keras model that returns embeddings,
            (B, D); or a path: a `.keras` file, the folder of a run, whose best
            model is used, or of a SavedModel. A path is read by `load`.
    """

    def __init__(self, source: Source) -> None:
        self.path: str | None = None
        self._embed: Callable[[Any], Tensor] | None = None
        if isinstance(source, keras.Model):
            self._embed = _inference(source)
        else:
            self.path = os.fspath(source)

    def load(self) -> Callable[[Any], Tensor]:
        """Reads the model, unless that has been done, and returns it."""
        if self._embed is None:
            self._embed = _read(Path(self.path or ""))
        return self._embed

    def __call__(self, inputs: Any) -> Tensor:
        """Returns unit embeddings, (B, D) float32, without a gradient.

        Of two views of images, the first is embedded. Images are resized to
        what a Keras model takes, and gray ones get three channels if it takes
        color.
        """
        if are_features(inputs):
            raise ValueError(
                "`teacher` of distillation must see the images that the model "
                "is trained on. Received: features of a frozen backbone. Use "
                "`feature_cache: none` in the recipe, or pass the teacher's "
                'embeddings as the target "teacher".'
            )
        if isinstance(inputs, dict) and "image2" in inputs:
            inputs = inputs["image"]
        embedding = ops.cast(self.load()(inputs), "float32")
        if len(embedding.shape) != 2:
            raise ValueError(
                "`teacher` of distillation must return embeddings, (B, D). "
                f"Received: a model that returns {tuple(embedding.shape)}. Use "
                "a trained MetricModel, or add pooling."
            )
        return ops.stop_gradient(l2_normalize(embedding))


def _inference(model: keras.Model) -> Callable[[Any], Tensor]:
    shape = model.input_shape
    takes_images = isinstance(shape, tuple) and len(shape) == 4

    def embed(inputs: Any) -> Tensor:
        if takes_images:
            size, channels = shape[1:3], shape[3]
            if None not in size and tuple(inputs.shape[1:3]) != size:
                inputs = ops.image.resize(inputs, size)
            if inputs.shape[-1] == 1 and channels == 3:
                inputs = ops.repeat(inputs, 3, axis=-1)
        return model(inputs, training=False)

    return embed


def _read(path: Path) -> Callable[[Any], Tensor]:
    if path.is_dir():
        for name in ("best.keras", "last.keras"):
            if (path / name).exists():
                return _inference(read_model(path / name))
        exported = _exported_folder(path)
        if exported is not None:
            return _signature(exported)
        raise FileNotFoundError(
            "`teacher` of distillation must be the folder of a run that saved "
            f"a model, or of a SavedModel. Received: {os.fspath(path)!r}, "
            "which has neither. Train the teacher first."
        )
    if not path.exists():
        raise FileNotFoundError(
            "`teacher` of distillation must be a .keras file, the folder of a "
            f"run or of a SavedModel. Received: {os.fspath(path)!r}, which "
            "does not exist. Train the teacher first, for example with "
            "`keras-dml train`, and pass the folder of the run."
        )
    return _inference(read_model(path))


def _exported_folder(folder: Path) -> Path | None:
    """The folder of a SavedModel: this one, or that of its last version."""
    if (folder / _SAVED_MODEL).exists():
        return folder
    versions = [
        x
        for x in folder.iterdir()
        if x.name.isdecimal() and (x / _SAVED_MODEL).exists()
    ]
    return max(versions, key=lambda x: int(x.name), default=None)


def _signature(folder: Path) -> Callable[[Any], Tensor]:
    """The default signature of an export, which prepares images itself."""
    loaded = tf.saved_model.load(os.fspath(folder))
    _, specs = loaded.signatures["serving_default"].structured_input_signature

    def embed(inputs: Any) -> Tensor:
        by_name = inputs if isinstance(inputs, dict) else dict.fromkeys(specs)
        arguments = {
            name: tf.cast(inputs if x is None else x, specs[name].dtype)
            for name, x in by_name.items()
        }
        # `loaded` owns the weights, so it lives as long as this function.
        return loaded.signatures["serving_default"](**arguments)["embedding"]

    return embed
