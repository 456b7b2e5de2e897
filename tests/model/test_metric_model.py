import keras
import numpy as np
import pytest

from keras_dml import MetricModel, methods
from keras_dml.data import View
from keras_dml.model.identity import ModelIdentity
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.objective import Objective
from keras_dml.model.update import multiplier_of
from tests.methods.test_contract import batch


class TwoTerms(Objective):
    """Two terms with fixed values."""

    terms = ("one", "two")

    def call(self, outputs, targets):
        ones = outputs["embedding"][:, 0] * 0 + 1
        return {"one": ones, "two": 2 * ones}


def two_terms(backbone, **kwargs) -> MetricModel:
    head = methods.baseline(backbone, embedding_dim=4).head
    return MetricModel(backbone, head, TwoTerms(), **kwargs)


def logs_of(model) -> dict[str, float]:
    model.compile("sgd", run_eagerly=True)
    return model.train_on_batch(*batch(), return_dict=True)


def test_loss_is_the_weighted_sum_and_terms_are_logged(tiny_backbone) -> None:
    model = two_terms(tiny_backbone, loss_weights={"two": 0.25})
    logs = logs_of(model)
    assert logs == pytest.approx({"loss": 1.5, "one": 1.0, "two": 2.0})


def test_callback_may_change_a_weight(tiny_backbone) -> None:
    model = two_terms(tiny_backbone)
    assert logs_of(model)["loss"] == pytest.approx(3)
    model.reset_metrics()
    model.weighting.weights_by_term["one"].assign(5.0)
    logs = model.train_on_batch(*batch(), return_dict=True)
    assert logs["loss"] == pytest.approx(7)


def test_weight_may_follow_a_schedule(tiny_backbone) -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [1], [1.0, 10.0]
    )
    model = two_terms(tiny_backbone, loss_weights={"one": schedule})
    model.compile("sgd", run_eagerly=True)
    losses = []
    for _ in range(3):
        model.reset_metrics()
        losses.append(model.train_on_batch(*batch(), return_dict=True)["loss"])
    assert losses == pytest.approx([3, 3, 12])


@pytest.mark.parametrize(
    ("name", "term", "weight", "expected"),
    [
        ("baseline", "triplet", 6.0, [3, 3, 6]),
        ("baseline", "triplet", 0.0, [0, 0, 0]),
        ("baseline", "triplet", "learned", [0.5, 0.5, 1]),
        ("diva", "shared_triplet", 6.0, [3, 3, 6]),
    ],
)
def test_number_scales_the_schedule_of_a_loss(
    name, term, weight, expected, tiny_backbone
) -> None:
    """1 and then 2, so that 6 at the end is 3 before."""
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([1], [1.0, 2.0])
    more = {"alpha": 1.0} if name == "diva" else {}
    loss = {"triplet": {"weight": steps}, "contrastive": 1.0}
    model = methods.METHODS[name].value(
        tiny_backbone, embedding_dim=4, loss=loss, loss_weights={term: weight},
        **more,
    )  # fmt: skip
    weighting = model.weighting
    weights = [float(weighting.weight_at(term, step)) for step in range(3)]
    assert weights == pytest.approx(expected)
    # What is learned may still be set by a callback, and is saved.
    again = MetricModel.from_config(model.get_config())
    again.weighting.weights_by_term[term].assign(0.0)
    last = 1 if weight == "learned" else 0
    assert float(again.weighting.weight_at(term, 2)) == last


def test_learned_weight_waits_for_its_schedule(tiny_backbone) -> None:
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.0, 2.0])
    weights = weights_with({"one": steps}, {"one": "learned"})
    model = two_terms(tiny_backbone, loss_weights=weights)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learned = model.weighting.weights_by_term["one"]
    values = []
    for _ in range(3):
        model.train_on_batch(*batch())
        values.append(float(learned))
    # exp(-s) + s is least at 0; s starts there, so it is moved away first.
    assert values == [0, 0, 0]
    learned.assign(1.0)
    model.train_on_batch(*batch())
    assert float(learned) == pytest.approx(1 - 0.1 * (1 - np.exp(-1)))


@pytest.mark.parametrize(
    "schedule",
    [
        keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5),
        keras.optimizers.schedules.InverseTimeDecay(1.0, 10, 0.5),
    ],
)
def test_number_requires_a_schedule_with_an_end(
    schedule, tiny_backbone
) -> None:
    loss = {"triplet": {"weight": schedule}, "contrastive": 1.0}
    with pytest.raises(ValueError, match="other than 0.*'triplet'.*=2.0"):
        methods.baseline(
            tiny_backbone, loss=loss, loss_weights={"triplet": 2.0}
        )


def test_learned_weights_balance_their_terms(tiny_backbone) -> None:
    """exp(-s) t + s is least at s = log t."""
    weights = {"one": "learned", "two": "learned"}
    model = two_terms(tiny_backbone, loss_weights=weights)
    model.compile(keras.optimizers.SGD(0.5))
    for _ in range(60):
        model.train_on_batch(*batch())
    learned = model.weighting.weights_by_term
    assert float(learned["one"]) == pytest.approx(0, abs=1e-3)
    assert float(learned["two"]) == pytest.approx(np.log(2), abs=1e-3)


def test_regularizers_of_the_backbone_count() -> None:
    inputs = keras.Input((16, 16, 1))
    conv = keras.layers.Conv2D(4, 3, kernel_regularizer=keras.regularizers.L2())
    backbone = keras.Model(inputs, conv(inputs))
    penalty = 0.01 * float(np.sum(np.square(conv.kernel)))
    logs = logs_of(two_terms(backbone))
    assert penalty > 1e-3
    assert logs["loss"] == pytest.approx(3 + penalty, rel=1e-5)


def test_fit_logs_means_of_the_epoch(tiny_backbone) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss="contrastive")
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x, targets = batch()
    seen = []
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(logs["loss"])
    )
    history = model.fit(
        x, targets, batch_size=6, epochs=1, callbacks=[keep], verbose=0
    ).history
    assert set(history) == {"loss"}
    assert history["loss"][0] == pytest.approx(seen[-1])


@pytest.mark.parametrize(
    ("weights", "regularizer", "columns"),
    [
        (None, {}, {"loss"}),
        ({"metric": 0.5}, {}, {"loss", "metric"}),
        (None, {"kernel_regularizer": "l2"}, {"loss", "metric"}),
        (None, {"activity_regularizer": "l2"}, {"loss", "metric"}),
    ],
)
def test_only_term_is_logged_if_it_differs_from_the_loss(
    weights, regularizer, columns, tmp_path
) -> None:
    inputs = keras.Input((12,))
    x = keras.layers.Dense(5, **regularizer)(inputs)
    model = methods.baseline(
        keras.Model(inputs, x), embedding_dim=4, loss="contrastive",
        loss_weights=weights,
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(12, 12)).astype("f4")
    labels = np.arange(12) % 3
    path = tmp_path / "log.csv"
    validated = {f"val_{name}" for name in columns}
    history = model.fit(
        x, labels, batch_size=12, verbose=0, validation_data=(x, labels),
        callbacks=[keras.callbacks.CSVLogger(path)],
    ).history  # fmt: skip
    assert set(history) == columns | validated
    assert set(path.read_text().split()[0].split(",")) - {"epoch"} == set(
        history
    )
    logs = model.evaluate(x, labels, verbose=0, return_dict=True)
    assert set(logs) == columns
    if "metric" in columns:
        assert logs["metric"] != pytest.approx(logs["loss"], rel=1e-3)


@pytest.mark.parametrize(
    "argument", [{"loss": "mse"}, {"metrics": ["accuracy"]}]
)
def test_compile_with_losses_or_metrics_raises(argument, tiny_backbone) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    with pytest.raises(ValueError, match="of MetricModel.compile"):
        model.compile("adam", **argument)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"metrik": 1.0}, "must name terms.*'metric'"),
        ({"metric": "auto"}, r"loss_weights\['metric'\]='auto'"),
    ],
)
def test_unfit_loss_weights_raise(weights, message, tiny_backbone) -> None:
    with pytest.raises(ValueError, match=message):
        methods.baseline(tiny_backbone, loss_weights=weights)


@pytest.mark.parametrize(
    ("pattern", "moves", "stays"),
    [("/loss/", "beta", "metric"), ("loss_weights", "metric", "beta")],
)
def test_patterns_tell_terms_and_loss_variables_apart(
    pattern, moves, stays, tiny_backbone
) -> None:
    model = methods.baseline(
        tiny_backbone, embedding_dim=4, loss_weights={"metric": "learned"},
        loss={"name": "margin", "learn_beta": True},
        rate_multipliers={pattern: 3.0},
    )  # fmt: skip
    variables = {
        "beta": model.objective.loss_variables.trainable_variables[0],
        "metric": model.weighting.weights_by_term["metric"],
    }
    assert variables["beta"].path == "objective/loss/beta"
    assert variables["metric"].path == "weighting/loss_weights_metric"
    assert multiplier_of(model, variables[moves]) == 3.0
    assert multiplier_of(model, variables[stays]) == 1.0


def test_variables_of_losses_do_not_decay_unless_asked(tiny_backbone) -> None:
    def beta_after(decay: bool) -> float:
        model = methods.baseline(
            tiny_backbone, embedding_dim=4, decay_loss_variables=decay,
            loss={"name": "margin", "learn_beta": True},
            rate_multipliers={"/loss/": 1.0},
        )  # fmt: skip
        beta = next(v for v in model.objective.trainable_variables)
        # One class a batch: no negatives and no gradient on β from them.
        sgd = keras.optimizers.SGD(0.1, weight_decay=0.5)
        model.compile(sgd, run_eagerly=True)
        x, targets = batch()
        targets["label"] = np.arange(12)  # No pairs: no gradient at all.
        start = float(np.ravel(beta)[0])
        model.train_on_batch(x, targets)
        return float(np.ravel(beta)[0]) - start

    assert beta_after(decay=False) == 0
    assert beta_after(decay=True) < 0


def test_earlier_exclusions_from_decay_are_kept(tiny_backbone) -> None:
    model = methods.baseline(
        tiny_backbone, embedding_dim=4,
        loss={"name": "margin", "learn_beta": True},
    )  # fmt: skip
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer)
    decays = {
        v.path: optimizer._use_weight_decay(v)
        for v in model.trainable_variables
    }
    assert not decays["head/dense/bias"]
    assert decays["head/dense/kernel"]
    assert not any(d for path, d in decays.items() if "/loss/" in path)


def test_mixed_precision_scales_the_loss(tiny_backbone) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = methods.baseline(
        "small_convnet", embedding_dim=4, loss="contrastive"
    )
    model.compile("adam", run_eagerly=True)
    scaler = model.optimizer
    assert isinstance(scaler, keras.optimizers.LossScaleOptimizer)
    x = np.random.default_rng(0).uniform(0, 255, (12, 48, 48, 1))
    before = model.head.dense.kernel.numpy()
    model.train_on_batch(x, {"label": np.repeat(np.arange(4), 3)})
    moved = np.abs(model.head.dense.kernel.numpy() - before)
    # Adam's first step has the size of the learning rate.
    assert np.median(moved) == pytest.approx(1e-3, rel=0.1)


def test_view_of_another_size_raises(tiny_backbone) -> None:
    for view in (View((16, 18), 1), View((16, 16), 3)):
        with pytest.raises(ValueError, match=r"input \(16, 16, 1\)\. Use View"):
            methods.baseline(tiny_backbone, view=view)


@pytest.mark.parametrize("pooling", ["avg", "max"])
def test_maps_of_any_size_are_pooled(pooling) -> None:
    inputs = keras.Input((None, None, 6))
    outputs = methods.EmbeddingHead(2, pooling=pooling)(inputs)
    model = keras.Model(inputs, outputs["embedding"])
    for size in ((4, 5), (2, 1)):
        assert model(np.ones((3, *size, 6), "float32")).shape == (3, 2)


def test_identity_ignores_the_objective(tiny_backbone) -> None:
    """The identity tells which model built an index."""
    loss = {"name": "margin", "learn_beta": True}
    model = methods.baseline(tiny_backbone, embedding_dim=6, loss=loss)
    identity = ModelIdentity.of(model)
    weight, kernel = model.objective.weights[0], model.head.weights[0]
    weight.assign(weight + 1)
    identity.check(model)
    kernel.assign(kernel * 1.001)
    with pytest.raises(ValueError, match="different weights"):
        identity.check(model)
