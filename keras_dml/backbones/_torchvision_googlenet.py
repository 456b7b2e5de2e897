"""GoogLeNet as in torchvision, with batch normalization."""

import keras
from keras import layers

from keras_dml.backbones._googlenet import WIDTHS
from keras_dml.backbones.caffe import halving_max_pool
from keras_dml.backbones.networks import network
from keras_dml.utils.types import Tensor


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
    x = _conv(x, 64, 7, "conv1", strides=2)
    x = halving_max_pool(x, "maxpool1")
    x = _conv(x, 64, 1, "conv2")
    x = _conv(x, 192, 3, "conv3")
    x = halving_max_pool(x, "maxpool2")
    for module in WIDTHS:
        if module == "4a":
            x = halving_max_pool(x, "maxpool3")
        if module == "5a":
            x = halving_max_pool(x, "maxpool4", size=2)
        x = _inception(x, module)
    return keras.Model(inputs, x, name="torchvision_googlenet")


def _inception(x: Tensor, module: str) -> Tensor:
    name = f"inception{module}"
    one, three_in, three, five_in, five, projection = WIDTHS[module]
    y = _conv(x, three_in, 1, f"{name}_branch2_0")
    z = _conv(x, five_in, 1, f"{name}_branch3_0")
    pooled = layers.MaxPooling2D(
        3, strides=1, padding="same", name=f"{name}_branch4_0"
    )(x)
    branches = [
        _conv(x, one, 1, f"{name}_branch1"),
        _conv(y, three, 3, f"{name}_branch2_1"),
        _conv(z, five, 3, f"{name}_branch3_1"),
        _conv(pooled, projection, 1, f"{name}_branch4_1"),
    ]
    return layers.Concatenate(name=f"{name}_output")(branches)


def _conv(
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
