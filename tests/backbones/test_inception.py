"""GoogLeNet, as of Caffe and as of torchvision, and BN-Inception.

The networks are computed a second time in PyTorch, straight from the state
dict, with Caffe's rules for padding and rounding.
"""

import functools
from collections.abc import Callable

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.backbones import convert

MAKERS = {
    "googlenet": backbones.googlenet,
    "bn_inception": backbones.bn_inception,
    "torchvision_googlenet": backbones.torchvision_googlenet,
}
every_network = pytest.mark.parametrize("name", MAKERS)
of_caffe = pytest.mark.parametrize(
    "name",
    ["googlenet", pytest.param("bn_inception", marks=pytest.mark.slow)],
)


def count(variables) -> int:
    return sum(int(np.prod(v.shape)) for v in variables)


@pytest.fixture(scope="module")
def small() -> Callable[[str], keras.Model]:
    """Shared networks of 32 × 32 pixels, by name; tests do not change them."""
    return functools.cache(lambda name: MAKERS[name]((32, 32, 3)))


@pytest.mark.slow
def test_weight_counts_match_the_published_ones(small) -> None:
    googlenet = small("googlenet")
    # bvlc_googlenet has 6,998,552 without its auxiliary classifiers.
    assert count(googlenet.weights) + 1025 * 1000 == 6_998_552
    bn_inception = small("bn_inception")
    # `bninception` of pretrained-models.pytorch.
    assert count(bn_inception.trainable_weights) + 1025 * 1000 == 11_295_240
    torchvision = small("torchvision_googlenet")
    # `googlenet` in torchvision's table of models.
    assert count(torchvision.trainable_weights) + 1025 * 1000 == 6_624_904


@every_network
@pytest.mark.slow
def test_map_sizes_match_caffe(name) -> None:
    model = MAKERS[name]((67, 67, 3))
    assert model.output_shape == (None, 2, 2, 1024)


@of_caffe
def test_preprocessing_is_bgr_less_the_mean(name, small) -> None:
    model = small(name)
    layer = model.get_layer("preprocessing")
    blue_mean, green_mean = 104, 117
    red_mean = 123 if name == "googlenet" else 128
    x = np.array([[[[200.0, 20.0, 3.0]]]], "float32")
    expected = [3 - blue_mean, 20 - green_mean, 200 - red_mean]
    np.testing.assert_allclose(layer(x)[0, 0, 0], expected)
    again = type(layer).from_config(layer.get_config())
    np.testing.assert_array_equal(again(x), layer(x))


def state_dict(model) -> dict[str, np.ndarray]:
    """Random weights, by their checkpoint names."""
    rng = np.random.default_rng(0)
    state = {}
    for layer in model.layers:
        name = layer.name
        if isinstance(layer, keras.layers.Conv2D):
            h, w, i, o = layer.kernel.shape
            scale = np.sqrt(2 / (h * w * i))
            state[f"{name}.weight"] = rng.normal(0, scale, (o, i, h, w))
            if layer.use_bias:
                state[f"{name}.bias"] = rng.normal(0, 0.1, o)
        if isinstance(layer, keras.layers.BatchNormalization):
            channels = layer.gamma.shape
            state[f"{name}.weight"] = rng.uniform(0.5, 1.5, channels)
            state[f"{name}.bias"] = rng.normal(0, 0.2, channels)
            state[f"{name}.running_mean"] = rng.normal(0, 0.2, channels)
            state[f"{name}.running_var"] = rng.uniform(0.5, 1.5, channels)
            state[f"{name}.num_batches_tracked"] = np.array(7)
    if model.name == "torchvision_googlenet":
        state = {dotted(name): value for name, value in state.items()}
    return {k: v.astype("float32") for k, v in state.items()}


def dotted(name: str) -> str:
    """ "inception3a_branch2_0_conv.weight" by torchvision's name."""
    module, parameter = name.split(".")
    return f"{module.replace('_', '.')}.{parameter}"


@pytest.mark.slow
def test_names_and_shapes_match_the_checkpoints(small) -> None:
    """Checks a few entries of the published checkpoints."""
    state = state_dict(small("googlenet"))
    assert len(state) == 2 * 57
    for name, shape in {
        "conv1_7x7_s2.weight": (64, 3, 7, 7),
        "conv2_3x3_reduce.weight": (64, 64, 1, 1),
        "inception_3a_5x5.weight": (32, 16, 5, 5),
        "inception_4e_pool_proj.bias": (128,),
        "inception_5b_3x3_reduce.weight": (192, 832, 1, 1),
    }.items():
        assert state[name].shape == shape
    state = state_dict(small("bn_inception"))
    for name, shape in {
        "conv1_7x7_s2_bn.running_var": (64,),
        "inception_3c_double_3x3_2.weight": (96, 96, 3, 3),
        "inception_4d_double_3x3_reduce.weight": (160, 608, 1, 1),
        "inception_5a_1x1.weight": (352, 1056, 1, 1),
        "inception_5b_pool_proj_bn.weight": (128,),
    }.items():
        assert state[name].shape == shape
    state = state_dict(small("torchvision_googlenet"))
    assert len(state) == 6 * 57
    for name, shape in {
        "conv1.conv.weight": (64, 3, 7, 7),
        "conv3.bn.running_mean": (192,),
        "inception3a.branch1.conv.weight": (64, 192, 1, 1),
        "inception4d.branch2.1.conv.weight": (288, 144, 3, 3),
        "inception5b.branch3.1.conv.weight": (128, 48, 3, 3),
        "inception5b.branch4.1.bn.weight": (128,),
    }.items():
        assert state[name].shape == shape


class Torch:
    """Computes a network in PyTorch from its state dict alone."""

    def __init__(self, state) -> None:
        import torch

        self.f = torch.nn.functional
        self.cat = torch.cat
        self.state = {k: torch.tensor(v) for k, v in state.items()}

    def conv(self, x, name, stride=1):
        weight = self.state[f"{name}.weight"]
        y = self.f.conv2d(
            x, weight, self.state[f"{name}.bias"], stride,
            padding=weight.shape[-1] // 2,
        )  # fmt: skip
        if f"{name}_bn.weight" in self.state:
            bn = [
                self.state[f"{name}_bn.{x}"]
                for x in ("running_mean", "running_var", "weight", "bias")
            ]
            y = self.f.batch_norm(y, *bn, eps=1e-5)
        return self.f.relu(y)

    def pool(self, x, stride=2):
        padding = 1 if stride == 1 else 0
        return self.f.max_pool2d(x, 3, stride, padding, ceil_mode=True)

    def torchvision_googlenet(self, x):
        x = self.pool(self.basic(x, "conv1", 2))
        x = self.pool(self.basic(self.basic(x, "conv2"), "conv3"))
        for module in "3a 3b 4a 4b 4c 4d 4e 5a 5b".split():
            if module == "4a":
                x = self.pool(x)
            if module == "5a":
                x = self.f.max_pool2d(x, 2, 2, ceil_mode=True)
            n = f"inception{module}.branch"
            branches = [
                self.basic(x, f"{n}1"),
                self.basic(self.basic(x, f"{n}2.0"), f"{n}2.1"),
                self.basic(self.basic(x, f"{n}3.0"), f"{n}3.1"),
                self.basic(self.pool(x, 1), f"{n}4.1"),
            ]
            x = self.cat(branches, 1)
        return x

    def basic(self, x, name, stride=1):
        """torchvision's `BasicConv2d`."""
        weight = self.state[f"{name}.conv.weight"]
        y = self.f.conv2d(x, weight, None, stride, weight.shape[-1] // 2)
        bn = [
            self.state[f"{name}.bn.{x}"]
            for x in ("running_mean", "running_var", "weight", "bias")
        ]
        return self.f.relu(self.f.batch_norm(y, *bn, eps=0.001))

    def norm(self, x):
        return self.f.local_response_norm(x, 5, 1e-4, 0.75, 1.0)

    def googlenet(self, x):
        x = self.norm(self.pool(self.conv(x, "conv1_7x7_s2", 2)))
        x = self.conv(self.conv(x, "conv2_3x3_reduce"), "conv2_3x3")
        x = self.pool(self.norm(x))
        for module in "3a 3b 4a 4b 4c 4d 4e 5a 5b".split():
            if module in ("4a", "5a"):
                x = self.pool(x)
            n = f"inception_{module}"
            three = self.conv(self.conv(x, f"{n}_3x3_reduce"), f"{n}_3x3")
            five = self.conv(self.conv(x, f"{n}_5x5_reduce"), f"{n}_5x5")
            pooled = self.conv(self.pool(x, 1), f"{n}_pool_proj")
            x = self.cat([self.conv(x, f"{n}_1x1"), three, five, pooled], 1)
        return x

    def bn_inception(self, x):
        x = self.pool(self.conv(x, "conv1_7x7_s2", 2))
        x = self.conv(self.conv(x, "conv2_3x3_reduce"), "conv2_3x3")
        x = self.pool(x)
        for module in "3a 3b 3c 4a 4b 4c 4d 4e 5a 5b".split():
            x = self.bn_module(x, f"inception_{module}")
        return x

    def bn_module(self, x, n):
        halves = n[-2:] in ("3c", "4e")
        stride = 2 if halves else 1
        three = self.conv(self.conv(x, f"{n}_3x3_reduce"), f"{n}_3x3", stride)
        double = self.conv(x, f"{n}_double_3x3_reduce")
        double = self.conv(double, f"{n}_double_3x3_1")
        double = self.conv(double, f"{n}_double_3x3_2", stride)
        if halves:
            return self.cat([three, double, self.pool(x)], 1)
        pooled = (
            self.pool(x, 1)
            if n.endswith("5b")
            else self.f.avg_pool2d(x, 3, 1, 1, count_include_pad=True)
        )
        pooled = self.conv(pooled, f"{n}_pool_proj")
        return self.cat([self.conv(x, f"{n}_1x1"), three, double, pooled], 1)


@pytest.mark.slow
@every_network
@pytest.mark.parametrize("size", [64, 67])
@pytest.mark.peers
def test_outputs_match_pytorch_with_the_same_weights(name, size) -> None:
    """67 pixels make odd maps, whose pooling rounds up in Caffe."""
    torch = pytest.importorskip("torch")
    model = MAKERS[name]((size, size, 3))
    state = state_dict(model)
    convert.load_state_dict(model, state)
    x = np.random.default_rng(1).uniform(0, 255, (1, size, size, 3))
    x = x.astype("float32")
    with torch.no_grad():
        inputs = preprocessed(name, x).transpose(0, 3, 1, 2)
        channels_first = torch.tensor(inputs.astype("float32"))
        expected = getattr(Torch(state), name)(channels_first)
    expected = expected.numpy().transpose(0, 2, 3, 1)
    assert expected.max() > 0.1
    np.testing.assert_allclose(
        model(x), expected, rtol=1e-3, atol=1e-4 * expected.max()
    )


def preprocessed(name, x) -> np.ndarray:
    if name == "torchvision_googlenet":
        # Normalized as all of its models, and then by `transform_input`.
        mean = np.array([0.485, 0.456, 0.406])
        std = np.array([0.229, 0.224, 0.225])
        normalized = (x / 255 - mean) / std
        return normalized * (std / 0.5) + (mean - 0.5) / 0.5
    red = 123 if name == "googlenet" else 128
    return x[..., ::-1] - np.array([104, 117, red])


# By name.


@pytest.mark.slow
@every_network
def test_weights_load_from_an_npz_or_h5_file(name, small, tmp_path) -> None:
    shape = (32, 32, 3)
    state = state_dict(small(name))
    classifier = {"last_linear.weight": 0, "loss3/classifier.bias": 0}
    np.savez(tmp_path / "state.npz", **state, **classifier)
    model = backbones.get(
        name.upper(), input_shape=shape, weights=str(tmp_path / "state.npz")
    )
    kernel = next(v for v in model.weights if len(v.shape) == 4)
    first = next(v for v in state.values() if v.ndim == 4)
    np.testing.assert_array_equal(kernel, first.transpose(2, 3, 1, 0))
    model.save_weights(tmp_path / "model.weights.h5")
    again = backbones.get(
        name, input_shape=shape, weights=str(tmp_path / "model.weights.h5")
    )
    x = np.random.default_rng(0).uniform(0, 255, (1, *shape))
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.parametrize("file", ["no.npz", "no.weights.h5"])
def test_missing_weights_file_raises(file) -> None:
    with pytest.raises(FileNotFoundError, match=file):
        backbones.get("googlenet", input_shape=(32, 32, 3), weights=file)
