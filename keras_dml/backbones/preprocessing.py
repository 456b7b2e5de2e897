"""Preprocessing as the first layer of a backbone."""

from typing import Any

import keras

from keras_dml.backbones.tokens import single_output
from keras_dml.utils.models import copy_model
from keras_dml.utils.types import Tensor


def with_preprocessing(
    backbone: keras.Model,
    preprocessing: keras.layers.Layer,
    input_shape: tuple[int, int, int] | None = None,
) -> keras.Model:
    """A copy of a backbone that includes the preprocessing of its images.

    The layers of the backbone are layers of the copy, with the same names, so
    that it can still be cut, frozen and saved.

    Args:
        backbone: A functional model with one input. It does not change.
        preprocessing: A layer without weights that converts pixels from 0 to
            255 to inputs of the backbone. For torchvision's ImageNet weights,
            it is `keras.layers.Rescaling(scale=[1 / 255 / s for s in std],
            offset=[-m / s for m, s in zip(mean, std)])`.
        input_shape: (H, W, C) of the images; by default, the backbone's.

    Returns:
        A functional model that returns the backbone's features of raw images.
    """
    backbone = single_output(backbone)
    shape = input_shape or backbone.inputs[0].shape[1:]
    images = keras.Input(shape, name="image")
    preprocessed = preprocessing(images)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Tensor:
        args = keras.tree.map_structure(
            lambda x: preprocessed if x is images else x, args
        )
        return layer(*args, **kwargs)

    copy = copy_model(backbone, inputs=images, call_function=call)
    return keras.Model(images, copy.outputs[0], name=backbone.name)
