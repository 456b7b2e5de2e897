"""A small convolutional network for glyphs, tests and laptops."""

import keras
from keras import layers

from keras_dml.backbones.networks import network


@network(
    "small_convnet",
    "four blocks, 0.1 million weights, for glyphs and laptops",
    branches=("relu_1", "relu_3"),
)
def small_convnet(
    input_shape: tuple[int, int, int] = (48, 48, 1),
    filters: tuple[int, ...] = (16, 32, 64, 128),
    width: float = 1.0,
) -> keras.Model:
    """A plain convnet of blocks: conv, 2×2 max pooling, batch norm, ReLU.

    The last block does not pool. The default arguments give 0.1 million
    weights.

    Args:
        input_shape: (H, W, C) of images with pixels from 0 to 255. H and W may
            be None.
        filters: Channels of each block.
        width: Factor of the channels: 0.5 leaves about a quarter of the
            weights.

    Returns:
        A functional model, (B, H, W, C) → (B, h, w, filters[-1]).
    """
    filters = tuple(max(1, round(width * channels)) for channels in filters)
    inputs = keras.Input(input_shape, name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0, name="rescaling")(inputs)
    for i, channels in enumerate(filters):
        x = layers.Conv2D(
            channels, 3, padding="same", use_bias=False, name=f"conv_{i}"
        )(x)
        if i < len(filters) - 1:
            # Pooling first makes the normalization four times cheaper.
            x = layers.MaxPooling2D(name=f"pool_{i}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"norm_{i}")(x)
        x = layers.ReLU(name=f"relu_{i}")(x)
    return keras.Model(inputs, x, name="small_convnet")
