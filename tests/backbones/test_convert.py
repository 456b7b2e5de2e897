import keras
import numpy as np
import pytest

from keras_dml.backbones import convert


def small(**kwargs) -> tuple[keras.Model, dict[str, np.ndarray]]:
    inputs = keras.Input((5, 5, 2))
    x = keras.layers.Conv2D(3, 2, name="stage_conv")(inputs)
    x = keras.layers.DepthwiseConv2D(2, use_bias=False, name="depth")(x)
    x = keras.layers.BatchNormalization(name="norm", **kwargs)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, keras.layers.Dense(4, name="dense")(x))
    rng = np.random.default_rng(0)
    shapes = {
        "stage/conv.weight": (3, 2, 2, 2), "stage/conv.bias": (3,),
        "depth.weight": (3, 1, 2, 2),
        "norm.weight": (3,), "norm.bias": (3,),
        "norm.running_mean": (3,), "norm.running_var": (3,),
        "dense.weight": (4, 3), "dense.bias": (4,),
    }  # fmt: skip
    state = {k: rng.uniform(0.1, 1, s) for k, s in shapes.items()}
    return model, {k: v.astype("float32") for k, v in state.items()}


@pytest.mark.peers
def test_converted_layers_match_pytorch() -> None:
    torch = pytest.importorskip("torch")
    model, state = small()
    convert.load_state_dict(model, {**state, "fc.weight": 0, "fc.bias": 0})
    x = np.random.default_rng(1).normal(size=(3, 5, 5, 2)).astype("f4")
    f, s = torch.nn.functional, {k: torch.tensor(v) for k, v in state.items()}
    y = torch.tensor(x.transpose(0, 3, 1, 2).copy())
    y = f.conv2d(y, s["stage/conv.weight"], s["stage/conv.bias"])
    y = f.conv2d(y, s["depth.weight"], groups=3)
    bn = [s[f"norm.{k}"] for k in ("running_mean", "running_var")]
    y = f.batch_norm(y, *bn, s["norm.weight"], s["norm.bias"], eps=1e-3)
    y = f.linear(y.mean((2, 3)), s["dense.weight"], s["dense.bias"])
    np.testing.assert_allclose(model(x), y.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm.bias": None}, r"missing \['norm.bias'\], unused \[\]"),
        ({"head.bias": 1}, r"missing \[\], unused \['head.bias'\]"),
        ({"dense.weight": np.zeros((3, 4))}, r"dense.weight.*\(3, 4\)"),
        ({"norm.bias": np.zeros((3, 1))}, r"norm.bias.*\(3, 1\)"),
    ],
)
def test_mismatched_state_raises_and_changes_nothing(change, message) -> None:
    model, state = small()
    before = model.get_weights()
    changed = {**state, **change}
    changed = {k: v for k, v in changed.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        convert.load_state_dict(model, changed)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rename_and_ignore_adapt_checkpoint_names() -> None:
    model, state = small()
    wrapped = {f"module.{k}": v for k, v in state.items()}
    wrapped["aux.weight"] = np.zeros(1)
    convert.load_state_dict(
        model,
        wrapped,
        rename=lambda name: name.removeprefix("module.").replace("/", "_"),
        ignore="^aux",
    )
    np.testing.assert_array_equal(
        model.get_layer("dense").kernel, state["dense.weight"].T
    )


def test_batch_norm_without_scale_has_no_weight() -> None:
    model, state = small(scale=False)
    del state["norm.weight"]
    convert.load_state_dict(model, state)
    np.testing.assert_array_equal(
        model.get_layer("norm").beta, state["norm.bias"]
    )


def test_layer_of_unknown_layout_raises() -> None:
    inputs = keras.Input((4,))
    outputs = keras.layers.LayerNormalization(name="ln")(inputs)
    model = keras.Model(inputs, outputs)
    with pytest.raises(ValueError, match="'ln' of type LayerNormalization"):
        convert.load_state_dict(model, {})
