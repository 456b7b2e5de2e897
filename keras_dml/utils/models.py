"""Models: read from files, copied with layers of their own, and cut in parts
that share the layers of the model."""

import contextlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import check_regular
from keras_dml.utils.trust import is_trusted, reading
from keras_dml.utils.types import Config


def read_model(path: str | os.PathLike[str]) -> keras.Model:
    """The model in a `.keras` file, without its optimizer.

    Keras runs no code of the file, unless it is trusted: it rejects Lambda
    layers and classes that are not registered. An OSError means that there is
    no regular file, a ValueError that it is damaged, or rejected.
    """
    check_regular(path)
    try:
        with reading(path):
            return keras.models.load_model(
                path, compile=False, safe_mode=not is_trusted()
            )
    # Whatever error Keras raises, the file is at fault.
    except Exception as error:
        raise ValueError(
            f"The model file {os.fspath(path)!r} cannot be read. "
            f"{why_unreadable(path, error)}"
        ) from error


def check_model(model: Any, owner: str) -> None:
    """Raises `ValueError` unless `model`, an argument of `owner`, is one."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`model` of {owner} must be a Keras model. Received: "
            f"{model!r:.80}. For the folder of a run, use "
            "keras_dml.runs.load_model(folder); for embeddings, use "
            "`evaluate_embeddings` or `Index(embeddings)`."
        )


def why_unreadable(path: str | os.PathLike[str], error: Exception) -> str:
    """Why Keras cannot load a model; of half a file, it says "not found"."""
    if os.path.isfile(path) and not zipfile.is_zipfile(path):
        return (
            "It is cut off or damaged: a .keras file is a zip archive. Save or "
            "copy it again."
        )
    text = f"{type(error).__name__}: {error}"
    if "safe_mode" in text:
        text += (
            " For a run, that is trust=True; for a command, --trust. For "
            "another model, load it by Keras."
        )
    return text


@contextlib.contextmanager
def computing_in_float32(model: keras.Model) -> Iterator[None]:
    """Context in which layers of mixed precision compute in float32."""
    mixed = {
        layer: layer.dtype_policy
        for layer in model._flatten_layers()
        if str(getattr(layer.dtype_policy, "name", "")).startswith("mixed_")
    }
    for layer in mixed:
        layer.dtype_policy = "float32"
    try:
        yield
    finally:
        for layer, policy in mixed.items():
            layer.dtype_policy = policy


def is_untrained(network: keras.Model) -> bool:
    """Whether all biases and normalization weights of a network are constant.

    Biases, scales, offsets and moving statistics start as zeros or ones. A
    network without any counts as trained.
    """
    vectors = [v for v in network.weights if len(v.shape) == 1]
    values = (keras.ops.convert_to_numpy(v) for v in vectors)
    return bool(vectors) and all(np.ptp(x) == 0 for x in values)


def copy_model(
    model: keras.Model,
    clone_function: Callable[[keras.layers.Layer], keras.layers.Layer]
    | None = None,
    name: str | None = None,
    inputs: keras.KerasTensor | None = None,
    same_weights: bool = True,
    **kwargs: Any,
) -> keras.Model:
    """A copy of a functional or sequential model, with layers of its own.

    Args:
        model: The model, which is left as it is.
        clone_function: As for `keras.models.clone_model`; it may not change
            the shape of a weight.
        name: Name of the copy, by default that of the model.
        inputs: Its only input, by default one like the model's.
        same_weights: Whether it has the weights of the model, not new ones.
        **kwargs: Passed to `keras.models.clone_model`.
    """
    packed: Any = None  # Inputs like those of the model.
    if len(model.inputs) == 1:
        first = model.inputs[0]
        if inputs is None:
            inputs = keras.Input(
                batch_shape=first.shape, dtype=first.dtype, name="features"
            )
        packed = inputs
        if not isinstance(model, keras.Sequential):
            # Keras wants a list of one where the model has such an input.
            packed = keras.tree.pack_sequence_as(model.input, [inputs])
    copy = keras.models.clone_model(model, packed, clone_function, **kwargs)
    copy.name = name or model.name
    if same_weights:
        copy.set_weights(model.get_weights())
    return copy


def input_like(tensor: keras.KerasTensor) -> keras.KerasTensor:
    """A new symbolic input with the shape, dtype and name of another."""
    return keras.Input(
        batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name
    )


class ModelTemplate:
    """A functional model of which a layer makes copies of its own.

    Keras would track a model that is an attribute of the layer; it does not
    see a template.
    """

    def __init__(self, model: keras.Model) -> None:
        config = keras.saving.serialize_keras_object(model)
        # As JSON, in which it is the same before and after saving.
        self._config = json.dumps(config)
        self._model: keras.Model | None = model

    @property
    def config(self) -> Config:
        """The serialized model, without weights."""
        config: Config = json.loads(self._config)
        return config

    def copy(self, name: str) -> keras.Model:
        """A copy with the model's weights, whose paths have `name`."""
        if self._model is None:
            raise ValueError(
                "A ModelTemplate cannot be copied after `forget`. Received: "
                f"copy({name!r}). Use `from_config` to create a new layer, "
                "because a layer can only be built once."
            )
        with keras.name_scope(name):
            return copy_model(self._model)

    def forget(self) -> None:
        """Frees the weights; the config stays."""
        self._model = None


def lower_part(backbone: keras.Model, last: str) -> keras.Model:
    """The backbone, a functional model, up to the layer called `last`."""
    output = _output(backbone, last)
    inputs = backbone.inputs[0] if len(backbone.inputs) == 1 else backbone.input
    return keras.Model(inputs, output, name=backbone.name)


def upper_part(
    backbone: keras.Model, after: str, last: str | None = None
) -> keras.Model:
    """The backbone, a functional model, behind the layer called `after`.

    It ends with the layer called `last`, by default where the backbone does.
    """
    start = _output(backbone, after)
    end = backbone.outputs[0] if last is None else _output(backbone, last)
    try:
        return keras.Model(start, end, name=backbone.name)
    except ValueError as error:
        raise ValueError(
            "A backbone can only be cut at a layer that all connections pass "
            f"through. Received: layer {after!r} of {backbone.name!r}, but "
            f"some connections to {last or 'the output'!r} bypass it, or none "
            "lead there from it. Use a layer between two blocks."
        ) from error


def _output(backbone: keras.Model, name: str) -> keras.KerasTensor:
    names = [layer.name for layer in backbone.layers]
    if name in names:
        return backbone.get_layer(name).output
    hint = did_you_mean(name, names)
    raise ValueError(
        f"There is no layer {name!r} in the backbone {backbone.name!r}.{hint}"
        f" Its layers: {', '.join(names)}."
    )
