"""What `fit` promises, on JAX: `python -m tests.model.jax_fit FOLDER`."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_dml as dml
from keras_dml.evaluation import evaluate

CLASSES, EACH = 8, 6


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), EACH)
    centers = np.random.default_rng(9).normal(size=(CLASSES, 12))
    x = centers[labels] + 0.7 * rng.normal(size=(len(labels), 12))
    return x.astype("float32"), labels


def network(dropout: float = 0.1) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(dropout),
        ]
    )


def model_of(loss: Any = "contrastive", **arguments: Any) -> dml.MetricModel:
    return dml.methods.baseline(
        network(), embedding_dim=8, loss=loss, **arguments
    )


def model_with(loss: Any, optimizer: keras.Optimizer) -> dml.MetricModel:
    model = model_of(loss)
    model.compile(optimizer)
    return model


def weights_of(model: keras.Model) -> np.ndarray:
    values = map(keras.ops.convert_to_numpy, model.trainable_variables)
    return np.concatenate([x.ravel() for x in values])


def learns_from_arrays() -> None:
    x, y = data()
    model = model_of()
    model.compile(keras.optimizers.Adam(1e-2), metrics=[mean_norm])
    before = evaluate(model, dml.data.ArraySet(*data(1)))["map@r"]
    history = model.fit(
        x, y, batch_size=24, epochs=8, validation_data=data(2), verbose=0
    ).history
    assert history["loss"][-1] < 0.8 * history["loss"][0], history
    assert {"val_loss", "mean_norm", "val_mean_norm"} <= set(history)
    np.testing.assert_allclose(history["mean_norm"], 1, atol=1e-5)
    assert evaluate(model, dml.data.ArraySet(*data(1)))["map@r"] > before + 0.05
    held_out = model.evaluate(*data(2), batch_size=24, verbose=0)
    np.testing.assert_allclose(held_out[0], history["val_loss"][-1], rtol=1e-5)


def mean_norm(labels: Any, embeddings: Any) -> Any:
    return keras.ops.mean(keras.ops.norm(embeddings, axis=-1))


def weighs_examples_and_classes() -> None:
    x, y = data()
    of_each = np.where(y == 0, 3.0, np.where(y == 5, 0.0, 1.0))
    in_order = {"batch_size": len(x), "balanced": False, "shuffle": False}
    losses = []
    for options, by_fit in (
        ({"class_weight": {0: 3.0, 5: 0.0}}, False),
        ({"class_weight": {0: 3.0, 5: 0.0}}, True),
        ({"sample_weight": of_each}, False),
        ({"sample_weight": of_each}, True),
        ({}, False),
    ):
        model = model_of()
        model.compile(keras.optimizers.SGD(0.1))
        if by_fit:
            model.fit(x, y, **options, **in_order, verbose=0)
        else:
            model.train_on_batch(x, y, **options)
        losses.append(weights_of(model))
    *weighted, plain = losses
    for weights in weighted:
        np.testing.assert_allclose(weights, losses[0], rtol=1e-5, atol=1e-7)
    assert not np.allclose(losses[0], plain, rtol=1e-3)


def half_precision_skips_what_overflows() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        x, y = data()
        model = model_of()
        model.compile(keras.optimizers.SGD(0.01))
        before = weights_of(model)
        model.fit(x, y, batch_size=24, epochs=1, verbose=0)
        assert np.isfinite(weights_of(model)).all()
        assert not np.array_equal(weights_of(model), before)
        model.optimizer.dynamic_scale.assign(3e38)
        before = weights_of(model)
        model.train_on_batch(x, y)
        assert np.array_equal(weights_of(model), before)
        assert float(model.optimizer.dynamic_scale) < 2e38
    finally:
        keras.config.set_dtype_policy("float32")


def trains_on_features_of_a_frozen_backbone() -> None:
    x, y = data()
    backbone = network(dropout=0)
    backbone.trainable = False
    examples = dml.data.ArraySet(x, y)
    results = []
    for kind in ("pixels", "features"):
        keras.utils.set_random_seed(0)
        model = dml.methods.baseline(backbone, embedding_dim=8, loss="triplet")
        model.compile(keras.optimizers.AdamW(1e-2, weight_decay=0.1))
        taken = examples
        if kind == "features":
            taken = dml.backbones.features(model, examples)
        sampler = dml.data.ClassBalanced(y, 4, 4, steps_per_epoch=5, seed=0)
        model.fit(dml.data.pipeline(taken, sampler), verbose=0)
        results.append(weights_of(model))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def leaves_rows_that_no_step_has_read() -> None:
    x, y = data()
    loss = {"name": "normalized_softmax", "num_classes": 400,
            "class_share": 0.15}  # fmt: skip
    model = model_with(loss, keras.optimizers.AdamW(1e-2, weight_decay=0.1))
    (proxies,) = (v for v in model.variables if "/loss/" in v.path)
    before = keras.ops.convert_to_numpy(proxies)
    model.train_on_batch(x, y)
    changed = (keras.ops.convert_to_numpy(proxies) != before).any(axis=1)
    assert changed.sum() == 60 and changed[:CLASSES].all()
    assert proxies.rows_read is None
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="mixed_bfloat16"):
        model_with(loss, scaled).train_on_batch(x, y)


def idle_learners_stay_as_they_are() -> None:
    x, y = data()
    # A loss that draws, and has variables, for each learner.
    loss = {"name": "margin", "learn_beta": True, "num_classes": CLASSES}
    model = dml.methods.divide_and_conquer(
        network(), embedding_dim=8, num_learners=2, loss=loss
    )
    model.compile(keras.optimizers.Adam(1e-2))
    groups = model.head.learner_variables()
    before = [[np.array(v) for v in group] for group in groups]
    model.train_on_batch(x, {"label": y, "learner": np.ones_like(y)})
    same = [
        all(np.array_equal(v, old) for v, old in zip(*pair, strict=True))
        for pair in zip(groups, before, strict=True)
    ]
    assert same == [True, False]


def refuses_ids_of_more_than_32_bits() -> None:
    x, y = data()
    wide = y.astype("int64") * 2**32
    model = model_of()
    model.compile("adam")
    batches = dml.data.pipeline(
        dml.data.ArraySet(x, wide), dml.data.ClassBalanced(wide, 4, 4)
    )
    for arguments in ((x, wide), (batches,)):
        with pytest.raises(ValueError, match="(?s)32 bits.*relabeled"):
            model.fit(*arguments, epochs=1, verbose=0)


def compiles_once() -> None:
    import jax

    x, y = data()
    model = model_of()
    model.compile("adam")
    count = 0

    def counted(event: str, *_: Any, **__: Any) -> None:
        nonlocal count
        count += "backend_compile" in event

    def fit() -> None:
        model.fit(x, y, batch_size=20, epochs=2, shuffle=False, verbose=0)

    fit()  # Batches of 20 and of 8.
    jax.monitoring.register_event_duration_secs_listener(counted)
    fit()
    assert not count, count


def resumes_to_the_same_bits(folder: Path) -> None:
    whole = fitted(folder / "whole")
    for step in (3, 5, 7):  # Of 5 in an epoch.
        parts = folder / f"stopped after {step}"
        with pytest.raises(KeyboardInterrupt):
            fitted(parts, stop=step)
        resumed = fitted(parts)
        assert resumed[0] == whole[0]
        assert np.array_equal(resumed[1], whole[1])


def fitted(folder: Path, stop: int = 0) -> tuple[Any, np.ndarray]:
    x, y = data()
    model = model_of()
    model.compile(keras.optimizers.Adam(1e-3))
    sampler = dml.data.ClassBalanced(y, 4, 4, steps_per_epoch=5, seed=0)
    batches = dml.data.pipeline(dml.data.ArraySet(x, y), sampler)
    callbacks = [dml.callbacks.Resume(folder, every=1), Stop(stop)]
    history = model.fit(
        batches, epochs=2, callbacks=callbacks, verbose=0
    ).history
    return history["loss"], weights_of(model)


def goes_on_from_a_backup(folder: Path) -> None:
    """Keras's `BackupAndRestore`, saving after every step."""
    x, y = data()

    def fit(*callbacks: keras.callbacks.Callback) -> np.ndarray:
        # Keras does not save the states of dropout.
        model = dml.methods.baseline(
            network(dropout=0), embedding_dim=8, loss="contrastive"
        )
        model.compile(keras.optimizers.Adam(1e-3))
        sampler = dml.data.ClassBalanced(y, 4, 4, steps_per_epoch=5, seed=0)
        batches = dml.data.pipeline(dml.data.ArraySet(x, y), sampler)
        model.fit(batches, epochs=2, callbacks=[*callbacks], verbose=0)
        assert model.optimizer.iterations == 10
        return weights_of(model)

    whole = fit()

    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(str(folder / "backup"), 1)

    for step in (2, 4):  # Of the first epoch, and of what is left.
        with pytest.raises(KeyboardInterrupt):
            fit(backup(), Stop(step))
    assert np.array_equal(fit(backup()), whole)


class Stop(keras.callbacks.Callback):
    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.seen = after, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.after and self.seen == self.after:
            raise KeyboardInterrupt
        self.seen += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.after and self.seen == self.after:
            raise KeyboardInterrupt


def saves_what_it_trained(folder: Path) -> None:
    x, y = data()
    # Keras does not save the states of dropout.
    model = dml.methods.baseline(network(dropout=0), embedding_dim=8)
    model.compile(keras.optimizers.Adam(1e-3))
    model.fit(x, y, batch_size=24, verbose=0)
    path = folder / "trained.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    for both in (model, loaded):
        both.train_on_batch(x, y)
    assert np.array_equal(weights_of(loaded), weights_of(model))
    np.savez(folder / "trained.npz", x=x, y=model.predict(x, verbose=0))
    model.save(path)


def main(folder: str) -> None:
    assert keras.backend.backend() == "jax"
    learns_from_arrays()
    weighs_examples_and_classes()
    half_precision_skips_what_overflows()
    trains_on_features_of_a_frozen_backbone()
    leaves_rows_that_no_step_has_read()
    idle_learners_stay_as_they_are()
    refuses_ids_of_more_than_32_bits()
    compiles_once()
    resumes_to_the_same_bits(Path(folder))
    goes_on_from_a_backup(Path(folder))
    saves_what_it_trained(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
