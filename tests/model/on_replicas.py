"""What users do with a model: two replicas compute what one does.

Run as a program, by `test_on_replicas.py`, on two logical devices.
"""

import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.model.update import slots_of
from tests.distribution.equality import replicas

CLASSES, DIM, BATCH, STEPS = 20, 4, 8, 3
PER_CLASS = {
    "name": "margin",
    "learn_beta": True,
    "num_classes": CLASSES,
    "mining": "all",
}
MEAN = {"name": "contrastive", "reduction": "mean"}
SAMPLED = {
    "name": "soft_triple",
    "num_classes": CLASSES,
    "num_centers": 2,
    "class_share": 0.5,
    "seed": 2,
}


def trained(
    loss,
    accumulate: int = 1,
    policy: str = "float32",
    normalization: dict[str, bool] | None = None,
    regularizer: str | None = None,
    optimizer: keras.Optimizer | None = None,
    tokens: bool = False,
    **arguments,
) -> tuple[list[float], list[np.ndarray]]:
    """The loss of each step, and all that there is at the end."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((5,))
    if tokens:  # Few, which every replica reads more than once.
        x = keras.layers.Embedding(4, 3)(keras.ops.cast(abs(x), "int32"))
        x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(
        6, activation="tanh", activity_regularizer=regularizer
    )(x)
    if normalization is not None:
        x = keras.layers.BatchNormalization(**normalization)(x)
    backbone = keras.Model(inputs, x)
    model = methods.baseline(
        backbone,
        embedding_dim=DIM,
        loss=losses.get(loss),
        accumulate=accumulate,
        rate_multipliers={"head": 2.0},
        **arguments,
    )
    for number, v in enumerate(model.trainable_variables):
        rng = np.random.default_rng(number)
        v.assign(0.5 * rng.standard_normal(v.shape))
    if optimizer is None:
        optimizer = keras.optimizers.Adam(0.01)
    else:
        optimizer = optimizer.from_config(optimizer.get_config())
    model.compile(optimizer, jit_compile=False)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS * BATCH, 5)).astype("float32")
    y = rng.integers(0, 6, STEPS * BATCH)
    values: list[float] = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: values.append(logs["loss"])
    )
    data = tf.data.Dataset.from_tensor_slices((x, {"label": y})).batch(
        BATCH, drop_remainder=True
    )
    model.fit(data, verbose=0, callbacks=[record])
    slots = [
        slot
        for v in model.trainable_variables
        for slot in slots_of(model.optimizer, v)
    ]
    variables = [v.value for v in (*model.weights, *slots)]
    for v in variables:  # Replicas agree to the bit.
        first, *others = getattr(v, "values", [v])
        for other in others:
            np.testing.assert_array_equal(first.numpy(), other.numpy())
    return values, [v.numpy() for v in variables]


def compare(name: str, strategy: tf.distribute.Strategy, **arguments) -> None:
    values, state = trained(**arguments)
    with strategy.scope():
        both, found = trained(**arguments)
    np.testing.assert_allclose(both, values, rtol=1e-5, err_msg=name)
    assert len(found) == len(state) > 10
    for a, b in zip(found, state, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5, err_msg=name)


def check_moving_statistics(strategy: tf.distribute.Strategy) -> None:
    """Replicas that compare nothing have one moving mean and variance."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, BATCH, 5)).astype("float32")
    mean, variance = np.zeros(5), np.ones(5)
    for halves in x.reshape(STEPS, 2, BATCH // 2, 5):
        mean = 0.5 * mean + 0.5 * halves.mean(axis=(0, 1))
        variance = 0.5 * variance + 0.5 * halves.var(axis=1).mean(axis=0)
    with strategy.scope():
        inputs = keras.Input((5,))
        norm = keras.layers.BatchNormalization(momentum=0.5)
        backbone = keras.Model(inputs, norm(inputs))
        model = methods.baseline(backbone, embedding_dim=DIM, gather="none")
        model.compile("sgd", run_eagerly=True)
    labels = np.tile([0, 1], (STEPS, BATCH // 2))
    data = tf.data.Dataset.from_tensor_slices((x, labels))
    model.fit(data, verbose=0)
    for variable, expected in (
        (norm.moving_mean, mean),
        (norm.moving_variance, variance),
    ):
        for own in variable.value.values:
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


def a_day(strategy: tf.distribute.Strategy, folder: str) -> list[np.ndarray]:
    """What a user does with a model, one thing after the other."""
    x, y = vectors()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = keras.Input((5,))
        hidden = keras.layers.BatchNormalization()(
            keras.layers.Dense(6, activation="tanh")(inputs)
        )
        model = methods.baseline(
            keras.Model(inputs, hidden), embedding_dim=DIM, loss=MEAN
        )
        model.compile(
            keras.optimizers.Adam(0.01),
            metrics=[of_labels],
            weighted_metrics=[keras.metrics.MeanMetricWrapper(of_labels)],
        )
    best = keras.callbacks.EarlyStopping(
        "val_loss", mode="max", patience=0, restore_best_weights=True
    )
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    weights = np.linspace(0, 2, len(x))
    found = [
        model.evaluate(x, y, sample_weight=weights, verbose=0),
        *model.fit(
            data,
            epochs=3,
            class_weight={0: 2.0, 1: 0.5},
            validation_data=(x, y, weights),
            callbacks=[best],
            verbose=0,
        ).history.values(),
        *model.get_weights(),
    ]
    path = f"{folder}/model.keras"
    model.save(path)
    outside = keras.models.load_model(path)
    model.save_weights(f"{folder}/model.weights.h5")
    with strategy.scope():
        inside = keras.models.load_model(path)
        inside.load_weights(f"{folder}/model.weights.h5")
    for loaded in (outside, inside):
        found += loaded.fit(data, verbose=0).history.values()
        found += [*loaded.get_weights(), loaded.predict(x, verbose=0)]
    inside.backbone.trainable = False
    before = inside.backbone.get_weights()
    with strategy.scope():
        inside.compile("sgd")
    found += inside.fit(x, y, verbose=0).history.values()
    for a, b in zip(before, inside.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    return list(map(np.asarray, [*found, *inside.get_weights()]))


@keras.saving.register_keras_serializable("tests")
def of_labels(labels, embeddings):
    return keras.ops.cast(labels, "float32") * embeddings[:, 0]


def check_a_day(strategy: tf.distribute.Strategy) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = a_day(tf.distribute.get_strategy(), folder)
        two = a_day(strategy, folder)
    assert len(one) == len(two) > 40
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def check_clipping(strategy: tf.distribute.Strategy) -> None:
    """What is clipped is the gradient of the batch."""
    x, y = vectors()

    def fitted(strategy: tf.distribute.Strategy, **clip: float) -> list:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            inputs = keras.Input((5,))
            backbone = keras.Model(inputs, keras.layers.Dense(6)(inputs))
            model = methods.baseline(backbone, embedding_dim=DIM, loss=MEAN)
            optimizer = keras.optimizers.SGD(0.5, **clip)
            if "global_clipnorm" in clip:
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
            model.compile(optimizer, run_eagerly=True)
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        model.fit(data, verbose=0)
        return model.get_weights()

    one = tf.distribute.get_strategy()
    free = fitted(one)
    for clip in ({"clipnorm": 0.02}, {"global_clipnorm": 0.02}):
        expected = fitted(one, **clip)
        assert np.abs(expected[0] - free[0]).max() > 1e-3
        for a, b in zip(expected, fitted(strategy, **clip), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6)


def check_refusals(strategy: tf.distribute.Strategy) -> None:
    x, y = vectors()
    with strategy.scope():
        inputs = keras.Input((5,))
        model = methods.baseline(
            keras.Model(inputs, keras.layers.Dense(6)(inputs)), gather="none"
        )
    model.compile("sgd")
    with pytest.raises(ValueError, match="/iteration.*call `compile` there"):
        model.fit(x, y, verbose=0)
    with strategy.scope():
        model.compile("sgd", jit_compile=True)
    model.evaluate(x, y, verbose=0)
    assert model.jit_compile is False
    relations = (y[:BATCH, None] == y[:BATCH]).astype("int32")
    with pytest.raises(ValueError, match="`gather` of MetricModel must be"):
        model.train_on_batch(x[:BATCH], relations)
    with pytest.raises(tf.errors.OpError, match="2 rows, 1 for each"):
        model.train_on_batch(x[:1], y[:1])
    metric = keras.metrics.MeanMetricWrapper(of_labels, name="outside")
    with strategy.scope():
        model.compile("sgd", metrics=[metric])
    with pytest.raises(ValueError, match="'outside/"):
        model.fit(x, y, verbose=0)


def vectors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS * BATCH, 5)).astype("float32")
    return x, rng.integers(0, 4, len(x))


def main() -> None:
    strategy = replicas(2)
    compare("parts", strategy, loss="multi_similarity", accumulate=3)
    compare(
        "rows that are read more than once",
        strategy,
        loss=PER_CLASS,
        tokens=True,
        optimizer=keras.optimizers.Adagrad(0.01, global_clipnorm=0.01),
    )
    check_a_day(strategy)
    check_clipping(strategy)
    check_refusals(strategy)
    with strategy.scope():
        # Half precision differs by more than what there is to compare.
        values, _ = trained(SAMPLED, accumulate=2, policy="mixed_float16")
        assert np.isfinite(values).all()
        values, _ = trained("contrastive", accumulate=2, normalization={})
        assert np.isfinite(values).all()
        check_moving_statistics(strategy)
        is_refused("gather", loss=SAMPLED, gather="none")
        is_refused("gather", loss=MEAN, regularizer="l2")
        is_refused(
            "accumulate",
            loss="contrastive",
            accumulate=2,
            normalization={"synchronized": True},
        )


def is_refused(name: str, **arguments) -> None:
    try:
        trained(**arguments)
    except ValueError as error:
        assert f"`{name}` of MetricModel must be" in str(error), error
    else:
        raise AssertionError(f"{name} was not refused")


if __name__ == "__main__":
    main()
