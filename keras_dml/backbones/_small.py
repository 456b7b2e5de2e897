"""Small networks for glyphs, names, tests and laptops."""

import keras
from keras import layers, ops

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


@network(
    "small_text_encoder",
    "three convolutions over byte tokens, 0.3 million weights",
)
def small_text_encoder(
    input_shape: tuple[int] = (48,), units: int = 128, blocks: int = 3
) -> keras.Model:
    """Residual blocks of layer norm, convolution over five tokens, ReLU.

    It is meant for names, codes and short queries, where spelling matters more
    than grammar; see `keras_dml.data.byte_tokens`. The default arguments give
    0.3 million weights.

    Args:
        input_shape: (T,), the number of tokens of a text. T may be None.
        units: Channels, C.
        blocks: Number of blocks.

    Returns:
        A functional model, (B, T) int32, 0 to 255 → (B, T, C). Zeros are
        padding: they do not affect other tokens, and are masked.
    """
    tokens = keras.Input(input_shape, dtype="int32", name="tokens")
    x = layers.Embedding(256, units, name="embedding")(tokens)
    is_token = ops.expand_dims(ops.not_equal(tokens, 0), -1)
    mask = ops.cast(is_token, x.dtype)
    x = layers.multiply([x, mask])
    for i in range(blocks):
        normed = layers.LayerNormalization(name=f"norm_{i}")(x)
        added = layers.Conv1D(
            units, 5, padding="same", activation="relu", name=f"conv_{i}"
        )(layers.multiply([normed, mask]))
        x = layers.multiply([layers.add([x, added]), mask])
    # Rows of zeros are masked.
    return keras.Model(
        tokens, layers.Masking(name="masking")(x), name="small_text_encoder"
    )
