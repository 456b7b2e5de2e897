"""A small convolutional encoder of byte tokens, for names and laptops."""

import keras
from keras import layers, ops

from keras_dml.backbones.networks import network


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
