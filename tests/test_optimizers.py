"""Coupled decay, against PyTorch and against loops in float64."""

import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.model.update import slots_of
from keras_dml.optimizers import COUPLED, CoupledAdam, CoupledSGD

DECAY, STEPS = 0.1, 6
SHAPES = ((4, 3), (3,))


def weights_and_gradients():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in SHAPES]
    gradients = [
        [rng.normal(size=shape) for shape in SHAPES] for _ in range(STEPS)
    ]
    return weights, gradients


def trained_by(optimizer, exclude=None) -> list[np.ndarray]:
    weights, gradients = weights_and_gradients()
    variables = [
        keras.Variable(w, name=name)
        for w, name in zip(weights, ("kernel", "bias"), strict=True)
    ]
    if exclude:
        optimizer.exclude_from_weight_decay(var_names=[exclude])
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply(
            [keras.ops.convert_to_tensor(g, "float32") for g in step]
        )
    return [v.numpy() for v in variables]


def adam_loop(
    w, gradients, rate, decay, beta_1=0.9, beta_2=0.999
) -> np.ndarray:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, gradient in enumerate(gradients, 1):
        gradient = gradient + decay * w
        m = beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        corrected = v / (1 - beta_2**t)
        w = w - rate * m / (1 - beta_1**t) / (np.sqrt(corrected) + 1e-8)
    return w


def test_coupled_adam_matches_a_loop() -> None:
    weights, gradients = weights_and_gradients()
    trained = trained_by(CoupledAdam(0.1, epsilon=1e-8, weight_decay=DECAY))
    for i, weight in enumerate(trained):
        expected = adam_loop(
            weights[i], [step[i] for step in gradients], 0.1, DECAY
        )
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)


def test_coupled_sgd_matches_a_loop() -> None:
    weights, gradients = weights_and_gradients()
    trained = trained_by(CoupledSGD(0.1, momentum=0.9, weight_decay=DECAY))
    for i, weight in enumerate(trained):
        expected, momentum = weights[i], np.zeros_like(weights[i])
        for step in gradients:
            momentum = 0.9 * momentum + step[i] + DECAY * expected
            expected = expected - 0.1 * momentum
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("Adam", {"epsilon": 1e-8}, {}),
        ("SGD", {"momentum": 0.9}, {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "nesterov": True},
         {"momentum": 0.9, "nesterov": True}),
        # Keras has ε under the root, PyTorch beside it.
        ("RMSprop", {"rho": 0.99, "epsilon": 1e-14},
         {"alpha": 0.99, "eps": 1e-9}),
    ],
)  # fmt: skip
@pytest.mark.peers
def test_coupled_optimizers_match_pytorch(name, ours, theirs) -> None:
    torch = pytest.importorskip("torch")
    weights, gradients = weights_and_gradients()
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    optimizer = getattr(torch.optim, name)(
        parameters, lr=0.05, weight_decay=DECAY, **theirs
    )
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    coupled = COUPLED[name.lower()](0.05, weight_decay=DECAY, **ours)
    for weight, expected in zip(trained_by(coupled), parameters, strict=True):
        np.testing.assert_allclose(
            weight, expected.detach().numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_optimizers_without_decay_match_keras(name) -> None:
    plain = keras.optimizers.get({"class_name": name, "config": {}})
    for decay in (None, 0.0):
        coupled = COUPLED[name](weight_decay=decay)
        for a, b in zip(trained_by(coupled), trained_by(plain), strict=True):
            np.testing.assert_array_equal(a, b)
        plain = keras.optimizers.get({"class_name": name, "config": {}})


def test_excluded_variables_do_not_decay() -> None:
    weights, gradients = weights_and_gradients()
    optimizer = CoupledAdam(0.1, epsilon=1e-8, weight_decay=DECAY)
    kernel, bias = trained_by(optimizer, exclude="bias")
    for trained, i, decay in ((kernel, 0, DECAY), (bias, 1, 0.0)):
        expected = adam_loop(
            weights[i], [step[i] for step in gradients], 0.1, decay
        )
        np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=1e-6)


def test_decay_comes_after_clipping() -> None:
    variable = keras.Variable([2.0])
    optimizer = CoupledSGD(1.0, weight_decay=DECAY, clipnorm=0.5)
    optimizer.build([variable])
    optimizer.apply([keras.ops.convert_to_tensor([100.0])])
    np.testing.assert_allclose(variable.numpy(), [2 - 0.5 - DECAY * 2])


def test_config_round_trips() -> None:
    optimizer = CoupledAdam(0.1, weight_decay=DECAY, epsilon=1e-8)
    config = keras.saving.serialize_keras_object(optimizer)
    restored = keras.saving.deserialize_keras_object(config)
    assert type(restored) is CoupledAdam
    assert restored.get_config() == optimizer.get_config()


def step(model, learner: int | None = None) -> None:
    x = np.random.default_rng(3).uniform(0, 255, (12, 16, 16, 1)).astype("f4")
    y = {"label": np.repeat(np.arange(4), 3)}
    if learner is not None:
        y["learner"] = np.full(12, learner)
    model.train_on_batch(x, y)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_idle_learners_stay_bit_identical(tiny_backbone) -> None:
    model = methods.divide_and_conquer(
        tiny_backbone, embedding_dim=8, num_learners=2,
        loss={
            "name": "margin", "learn_beta": True, "num_classes": 4,
            "mining": "all",
        },
    )  # fmt: skip
    model.compile(CoupledAdam(1e-2, weight_decay=DECAY), run_eagerly=True)

    def state(k: int) -> list[bytes]:
        owned = model.objective.learner_variables()[k]
        variables = model.head.learner_variables()[k] + owned
        slots = [s for v in variables for s in slots_of(model.optimizer, v)]
        assert len(slots) == 2 * len(variables)
        return [v.numpy().tobytes() for v in [*variables, *slots]]

    for k in (-1, 0, 1):
        step(model, k)
    before = [state(k) for k in range(2)]
    step(model, 1)
    assert [state(k) == before[k] for k in range(2)] == [True, False]


def test_loss_variables_decay_if_asked(tiny_backbone) -> None:
    """β without a gradient moves by its decay alone, and then by the rate."""
    keras.config.set_dtype_policy("mixed_float16")
    model = methods.baseline(
        tiny_backbone, embedding_dim=8, decay_loss_variables=True,
        loss={"name": "margin", "learn_beta": True, "num_classes": 9},
    )  # fmt: skip
    model.compile(CoupledSGD(0.5, weight_decay=DECAY), run_eagerly=True)
    (beta,) = (v for v in model.trainable_variables if "/loss/beta" in v.path)
    step(model)  # Classes 0 to 3 of 9.
    expected = 1.2 * (1 - 0.5 * DECAY)
    np.testing.assert_allclose(beta.numpy()[4:], expected, rtol=1e-6)


@pytest.mark.slow
def test_reloaded_model_continues_equally(tiny_backbone, tmp_path) -> None:
    model = methods.baseline(
        tiny_backbone, embedding_dim=8, loss="contrastive",
        rate_multipliers={"head": 10.0},
    )  # fmt: skip
    model.compile(CoupledAdam(1e-2, weight_decay=DECAY), jit_compile=True)
    step(model)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is CoupledAdam
    for trained in (model, again):
        step(trained)
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_decay_multipliers_match_a_loop() -> None:
    """The first pattern that matches multiplies λ, and 0 takes it away."""
    weights, gradients = weights_and_gradients()
    multipliers = {"kernel": 0.25, "bias|kernel": 0.0}
    trained = trained_by(
        CoupledAdam(
            0.1, epsilon=1e-8, weight_decay=DECAY, decay_multipliers=multipliers
        )
    )
    for i, factor in enumerate((0.25, 0.0)):
        expected = adam_loop(
            weights[i], [step[i] for step in gradients], 0.1, factor * DECAY
        )
        np.testing.assert_allclose(trained[i], expected, rtol=1e-4, atol=1e-6)


def test_decay_multipliers_are_saved_and_checked() -> None:
    multipliers = {"kernel": 0.5}
    optimizer = CoupledSGD(
        0.1, weight_decay=DECAY, decay_multipliers=multipliers
    )
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.decay_multipliers == multipliers
    for arguments, message in (
        ({"weight_decay": None}, "multiply a `weight_decay`"),
        ({"decay_multipliers": {"kernel": -1}}, "at least 0"),
        ({"decay_multipliers": {"(": 1}}, "must be regular"),
    ):
        with pytest.raises(ValueError, match=message):
            CoupledSGD(
                **{
                    "weight_decay": DECAY,
                    "decay_multipliers": multipliers,
                    **arguments,
                }
            )
    wrong = CoupledSGD(weight_decay=DECAY, decay_multipliers={"kernle": 1})
    with pytest.raises(ValueError, match="'kernle', which matches none of 2"):
        trained_by(wrong)
