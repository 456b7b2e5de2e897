"""BN-Inception: the Inception network of the batch normalization paper."""

import keras
from keras import layers

from keras_dml.backbones._googlenet import halving_max_pool, image_input
from keras_dml.backbones.networks import network
from keras_dml.utils.types import Tensor

MEAN = (104.0, 117.0, 128.0)

# Output channels of 1×1; 3×3 reduction and 3×3; double 3×3 reduction and
# double 3×3; pooling and its projection. 3c and 4e halve the map: they do not
# have a 1×1 convolution or a projection after pooling.
MODULES: dict[str, tuple[int, int, int, int, int, str, int]] = {
    "3a": (64, 64, 64, 64, 96, "avg", 32),
    "3b": (64, 64, 96, 64, 96, "avg", 64),
    "3c": (0, 128, 160, 64, 96, "max", 0),
    "4a": (224, 64, 96, 96, 128, "avg", 128),
    "4b": (192, 96, 128, 96, 128, "avg", 128),
    "4c": (160, 128, 160, 128, 160, "avg", 128),
    "4d": (96, 128, 192, 160, 192, "avg", 128),
    "4e": (0, 128, 192, 192, 256, "max", 0),
    "5a": (352, 192, 320, 160, 224, "avg", 128),
    "5b": (352, 192, 320, 192, 224, "max", 128),
}


@network(
    "bn_inception",
    "BN-Inception (2015), with biases",
    has_weights=True,
    branches=("inception_3c_output", "inception_4e_output"),
)
def bn_inception(
    input_shape: tuple[int, int, int] = (224, 224, 3),
) -> keras.Model:
    """BN-Inception (Inception-V1 with batch normalization, 2015).

    Convolutions have biases, as in available checkpoints, and are followed by
    batch normalization (ε 1e-5) and ReLU. The classifier is left out. Weights
    are random; see `keras_dml.backbones.convert` to load a checkpoint. Layers
    have the names used in Caffe with "_" for "/": "inception_4d_3x3",
    "inception_4d_3x3_bn", "inception_4d_output".

    Args:
        input_shape: (H, W, 3) of RGB images with pixels from 0 to 255.

    Returns:
        A functional model, (B, H, W, 3) → (B, h, w, 1024). Preprocessing
        (BGR, mean 104, 117, 128) is its first layer.

    Reference:
        Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network
        Training by Reducing Internal Covariate Shift", ICML 2015,
        https://arxiv.org/abs/1502.03167.
    """
    inputs, x = image_input(input_shape, MEAN)
    x = _conv(x, 64, 7, "conv1_7x7_s2", strides=2)
    x = halving_max_pool(x, "pool1_3x3_s2")
    x = _conv(x, 64, 1, "conv2_3x3_reduce")
    x = _conv(x, 192, 3, "conv2_3x3")
    x = halving_max_pool(x, "pool2_3x3_s2")
    for module in MODULES:
        x = _inception(x, module)
    return keras.Model(inputs, x, name="bn_inception")


def _inception(x: Tensor, module: str) -> Tensor:
    name = f"inception_{module}"
    one, three_in, three, double_in, double, pooling, projection = MODULES[
        module
    ]
    strides = 1 if one else 2
    branches = [_conv(x, one, 1, f"{name}_1x1")] if one else []
    y = _conv(x, three_in, 1, f"{name}_3x3_reduce")
    branches.append(_conv(y, three, 3, f"{name}_3x3", strides))
    y = _conv(x, double_in, 1, f"{name}_double_3x3_reduce")
    y = _conv(y, double, 3, f"{name}_double_3x3_1")
    branches.append(_conv(y, double, 3, f"{name}_double_3x3_2", strides))
    y = _pool(x, pooling, strides, f"{name}_pool")
    if projection:
        y = _conv(y, projection, 1, f"{name}_pool_proj")
    return layers.Concatenate(name=f"{name}_output")([*branches, y])


def _conv(
    x: Tensor, channels: int, size: int, name: str, strides: int = 1
) -> Tensor:
    if strides == 2:
        # Caffe pads both sides equally; "same" in Keras does not.
        x = layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    padding = "same" if strides == 1 else "valid"
    x = layers.Conv2D(
        channels, size, strides=strides, padding=padding, name=name
    )(x)
    x = layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, name=f"{name}_bn"
    )(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def _pool(x: Tensor, pooling: str, strides: int, name: str) -> Tensor:
    if strides == 2:
        return halving_max_pool(x, name)
    if pooling == "max":
        return layers.MaxPooling2D(3, strides=1, padding="same", name=name)(x)
    # Caffe's averages include the padding; "same" in Keras excludes it.
    x = layers.ZeroPadding2D(1, name=f"{name}_pad")(x)
    return layers.AveragePooling2D(3, strides=1, name=name)(x)
