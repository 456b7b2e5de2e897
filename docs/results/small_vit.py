"""The vision transformer of the experiment "small transformer" on glyphs."""

import keras
from keras import layers


def small_vit(side=48, patch=8, width=64, depth=3, heads=4) -> keras.Model:
    images = keras.Input((side, side, 1))
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(images)
    x = layers.Conv2D(width, patch, strides=patch)(x)
    x = layers.Reshape((-1, width))(x)
    places = keras.ops.arange(x.shape[1])
    x = x + layers.Embedding(x.shape[1], width)(places)
    for _ in range(depth):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = x + layers.Dense(width)(y)
    return keras.Model(images, layers.LayerNormalization()(x))


keras.utils.set_random_seed(0)
small_vit().save("vit.keras")
