"""GoogLeNet as it was released for Caffe."""

import keras
from keras import layers

from keras_dml.backbones.caffe import halving_max_pool, image_input
from keras_dml.backbones.networks import network
from keras_dml.layers import LocalResponseNormalization
from keras_dml.utils.types import Tensor

MEAN = (104.0, 117.0, 123.0)

# Output channels of 1×1; 3×3 reduction and 3×3; 5×5 reduction and 5×5; and
# the projection after pooling (Szegedy et al., Table 1).
WIDTHS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


@network(
    "googlenet",
    "GoogLeNet as released for Caffe: biases, LRN, no batch normalization",
    has_weights=True,
    branches=("pool3_3x3_s2", "inception_4e_output"),
)
def googlenet(
    input_shape: tuple[int, int, int] = (224, 224, 3),
) -> keras.Model:
    """Caffe's GoogLeNet (Inception-V1), up to the last Inception module.

    Convolutions have biases, and there is no batch normalization. Local
    response normalization follows the first pooling and the third convolution.
    The two auxiliary classifiers, the dropout and the classifier are left out.
    Weights are random; see `keras_dml.backbones.convert` to load a checkpoint.
    Layers have the names used in Caffe with "_" for "/": "conv1_7x7_s2",
    "pool3_3x3_s2", "inception_4e_output".

    Args:
        input_shape: (H, W, 3) of RGB images with pixels from 0 to 255.

    Returns:
        A functional model, (B, H, W, 3) → (B, h, w, 1024), 5,973,552
        weights. Preprocessing (BGR, mean 104, 117, 123) is its first layer.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", CVPR 2015,
        https://arxiv.org/abs/1409.4842; the model `bvlc_googlenet` of Caffe.
    """
    inputs, x = image_input(input_shape, MEAN)
    # Caffe pads both sides equally; "same" in Keras does not.
    x = layers.ZeroPadding2D(3, name="conv1_7x7_s2_pad")(x)
    x = layers.Conv2D(64, 7, strides=2, activation="relu", name="conv1_7x7_s2")(
        x
    )
    x = halving_max_pool(x, "pool1_3x3_s2")
    x = LocalResponseNormalization(name="pool1_norm1")(x)
    x = _conv(x, 64, 1, "conv2_3x3_reduce")
    x = _conv(x, 192, 3, "conv2_3x3")
    x = LocalResponseNormalization(name="conv2_norm2")(x)
    x = halving_max_pool(x, "pool2_3x3_s2")
    for module in WIDTHS:
        if module in ("4a", "5a"):
            x = halving_max_pool(x, f"pool{int(module[0]) - 1}_3x3_s2")
        x = _inception(x, module)
    return keras.Model(inputs, x, name="googlenet")


def _inception(x: Tensor, module: str) -> Tensor:
    name = f"inception_{module}"
    one, three_in, three, five_in, five, projection = WIDTHS[module]
    pooled = layers.MaxPooling2D(
        3, strides=1, padding="same", name=f"{name}_pool"
    )(x)
    branches = [
        _conv(x, one, 1, f"{name}_1x1"),
        _conv(
            _conv(x, three_in, 1, f"{name}_3x3_reduce"),
            three, 3, f"{name}_3x3",
        ),
        _conv(
            _conv(x, five_in, 1, f"{name}_5x5_reduce"),
            five, 5, f"{name}_5x5",
        ),
        _conv(pooled, projection, 1, f"{name}_pool_proj"),
    ]  # fmt: skip
    return layers.Concatenate(name=f"{name}_output")(branches)


def _conv(x: Tensor, channels: int, size: int, name: str) -> Tensor:
    return layers.Conv2D(
        channels, size, padding="same", activation="relu", name=name
    )(x)
