"""GoogLeNet, as it was released for Caffe and as in torchvision."""

from typing import Any

import keras
from keras import layers, ops

from keras_dml.backbones.networks import network
from keras_dml.layers import LocalResponseNormalization
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor

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


@register
class CaffePreprocessing(SerializableLayer):
    """Converts RGB to BGR and subtracts the mean of each channel.

    Args:
        mean: Means of blue, green and red, in this order.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        images: (B, H, W, 3), RGB, 0 to 255.

    Returns:
        (B, H, W, 3), BGR, centered.
    """

    def __init__(self, mean: tuple[float, float, float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean = tuple(mean)
        self.built = True

    def call(self, images: Tensor) -> Tensor:
        mean = ops.convert_to_tensor(self.mean, dtype=images.dtype)
        return ops.flip(images, axis=-1) - mean

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


def image_input(
    input_shape: tuple[int, int, int], mean: tuple[float, float, float]
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """The input of a network, and the preprocessed input."""
    inputs = keras.Input(input_shape, name="image")
    return inputs, CaffePreprocessing(mean, name="preprocessing")(inputs)


def halving_max_pool(x: Tensor, name: str, size: int = 3) -> Tensor:
    """Max pooling with stride 2 whose output size is rounded up.

    In Caffe, and in PyTorch with `ceil_mode`, the last window may extend past
    the edge. For activations that are not negative, padding with zeros is
    equivalent. If the last window fits, the padding is not used.
    """
    x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
    return layers.MaxPooling2D(size, strides=2, name=name)(x)


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


@network(
    "torchvision_googlenet",
    "GoogLeNet of torchvision, with batch normalization",
    has_weights=True,
    branches=("maxpool3", "inception4e_output"),
)
def torchvision_googlenet(
    input_shape: tuple[int, int, int] = (224, 224, 3),
) -> keras.Model:
    """torchvision's GoogLeNet, up to the last Inception module.

    Convolutions do not have biases and are followed by batch normalization
    (ε 1e-3). There is no local response normalization, 3×3 convolutions replace
    the 5×5 ones of the paper, and a 2×2 pooling precedes the last two modules.
    The auxiliary classifiers, the dropout and the classifier are left out.
    Weights are random. Layers have the names of torchvision's modules with "_"
    for ".", so that `convert.load_state_dict` takes its state dict unchanged:
    "conv1_conv", "inception4e_branch2_1_bn", "maxpool3".

    Args:
        input_shape: (H, W, 3) of RGB images with pixels from 0 to 255.

    Returns:
        A functional model, (B, H, W, 3) → (B, h, w, 1024). Its first layer
        rescales images to [−1, 1], which is the combined effect of
        torchvision's normalization and its `transform_input`.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", CVPR 2015,
        https://arxiv.org/abs/1409.4842.
    """
    inputs = keras.Input(input_shape, name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0, name="preprocessing")(inputs)
    # PyTorch pads both sides equally; "same" in Keras does not.
    x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
    x = _torchvision_conv(x, 64, 7, "conv1", strides=2)
    x = halving_max_pool(x, "maxpool1")
    x = _torchvision_conv(x, 64, 1, "conv2")
    x = _torchvision_conv(x, 192, 3, "conv3")
    x = halving_max_pool(x, "maxpool2")
    for module in WIDTHS:
        if module == "4a":
            x = halving_max_pool(x, "maxpool3")
        if module == "5a":
            x = halving_max_pool(x, "maxpool4", size=2)
        x = _torchvision_inception(x, module)
    return keras.Model(inputs, x, name="torchvision_googlenet")


def _torchvision_inception(x: Tensor, module: str) -> Tensor:
    name = f"inception{module}"
    one, three_in, three, five_in, five, projection = WIDTHS[module]
    y = _torchvision_conv(x, three_in, 1, f"{name}_branch2_0")
    z = _torchvision_conv(x, five_in, 1, f"{name}_branch3_0")
    pooled = layers.MaxPooling2D(
        3, strides=1, padding="same", name=f"{name}_branch4_0"
    )(x)
    branches = [
        _torchvision_conv(x, one, 1, f"{name}_branch1"),
        _torchvision_conv(y, three, 3, f"{name}_branch2_1"),
        _torchvision_conv(z, five, 3, f"{name}_branch3_1"),
        _torchvision_conv(pooled, projection, 1, f"{name}_branch4_1"),
    ]
    return layers.Concatenate(name=f"{name}_output")(branches)


def _torchvision_conv(
    x: Tensor, channels: int, size: int, name: str, strides: int = 1
) -> Tensor:
    x = layers.Conv2D(
        channels,
        size,
        strides=strides,
        padding="same" if strides == 1 else "valid",
        use_bias=False,
        name=f"{name}_conv",
    )(x)
    x = layers.BatchNormalization(
        momentum=0.9, epsilon=1e-3, name=f"{name}_bn"
    )(x)
    return layers.ReLU(name=f"{name}_relu")(x)
