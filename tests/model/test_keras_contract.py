"""The contract of Keras models."""

import copy
import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, backbones, losses, methods
from keras_dml.data import ArraySet, ClassBalanced, pipeline
from keras_dml.embedding.engines import SUFFIXES, loader
from tests.methods.test_contract import batch

LABELS = np.repeat(np.arange(6), 8)


def vectors(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(48, 5))
    return (np.eye(6, 5)[LABELS] + 0.3 * noise).astype("float32")


def dense() -> keras.Model:
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(4)(inputs))


def small(loss="contrastive", jit: bool | None = None, **kwargs) -> MetricModel:
    """A compiled model of vectors; eager unless `jit` is given."""
    metrics = kwargs.pop("metrics", None)
    objective = methods.EmbeddingObjective(losses.get(loss), name="objective")
    head = methods.EmbeddingHead(3, name="head")
    model = MetricModel(dense(), head, objective, **kwargs)
    model.compile(
        keras.optimizers.Adam(0.01),
        run_eagerly=jit is None,
        jit_compile=bool(jit),
        metrics=metrics,
    )
    return model


def weights_of(model: keras.Model) -> list[np.ndarray]:
    return [np.array(v) for v in (*model.variables, *model.optimizer.variables)]


def told(caplog) -> list[str]:
    """Messages that this package has logged."""
    records = [x for x in caplog.records if x.name.startswith("keras_dml")]
    return [record.getMessage() for record in records]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# Symbols.


def test_sequential_backbone_works_like_a_functional_one() -> None:
    # The head has a layer of the same name.
    dense = keras.layers.Dense(4, name="dense")
    network = keras.Sequential([keras.Input((5,)), dense])
    model = methods.baseline(network, embedding_dim=3)
    expected = model(vectors())
    symbolic = keras.Model(model.input, model.output)
    for other in (symbolic, model.encoder):
        np.testing.assert_array_equal(other(vectors()), expected)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_quantize_takes_effect_after_predict(tmp_path) -> None:
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)])
    model = methods.baseline(network, embedding_dim=3)
    exact = model.predict(vectors(), verbose=0)
    model.quantize("int8")
    coarse = model.predict(vectors(), verbose=0)
    assert 0 < np.abs(coarse - exact).max() < 0.1
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(vectors(), verbose=0), coarse)


def test_inputs_and_outputs_are_symbolic(tiny_backbone) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    assert model.inputs == [model.input] and model.outputs == [model.output]
    assert model.output is model.output
    assert model.output.shape == (None, 4)
    plain = keras.Model(model.input, model.output)
    x, _ = batch()
    np.testing.assert_array_equal(plain(x), model(x))
    assert not any(isinstance(x, MetricModel) for x in plain.layers)


# Export.


@pytest.mark.slow
def test_exported_saved_model_gives_the_same_embeddings(
    tiny_backbone, tmp_path
) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4, ema_momentum=0.9)
    model.export(tmp_path / "saved", verbose=False)
    x, _ = batch()
    served = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(served.serve(x), model(x), atol=1e-6)
    kept = sum(int(tf.size(v)) for v in served.variables)
    inference = (*model.backbone.weights, *model.head.weights)
    assert kept == sum(int(np.size(v)) for v in inference)


@pytest.mark.slow
def test_export_in_half_precision_takes_floats(tmp_path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = methods.baseline(backbone, embedding_dim=4)
    model.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "saved"))
    x, _ = batch()
    assert served.serve(tf.constant(x, tf.float32)).dtype == tf.float32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_format", "package"),
    [
        ("onnx", "tf2onnx"),
        ("litert", "ai_edge_litert"),
        pytest.param("openvino", "openvino", marks=pytest.mark.peers),
    ],
)
@pytest.mark.filterwarnings("ignore:In the future `np.object`")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_export_to_a_file_gives_the_same_embeddings(
    tiny_backbone, tmp_path, file_format: str, package: str
) -> None:
    pytest.importorskip(package)
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    path = (tmp_path / "model").with_suffix(SUFFIXES[file_format])
    model.export(path, format=file_format, verbose=False)
    x = np.asarray(batch()[0], "float32")
    embeddings = loader(file_format, "a test")(path)(x)
    np.testing.assert_allclose(embeddings, model(x), atol=1e-5)


# Held-out losses.


def test_evaluate_returns_the_loss_and_changes_nothing() -> None:
    model = small({"name": "margin", "learn_beta": True, "seed": 1})
    model.train_on_batch(vectors(), LABELS)
    before = weights_of(model)
    first = model.evaluate(vectors(1), LABELS, verbose=0, return_dict=True)
    second = model.evaluate(vectors(1), LABELS, verbose=0, return_dict=True)
    assert first == second and set(first) == {"loss"}
    assert first["loss"] > 0
    assert same(before, weights_of(model))


def test_evaluate_is_the_loss_of_the_batch() -> None:
    model, x = small(), vectors(1)
    expected = model.objective.loss(LABELS, model(x))
    data = tf.data.Dataset.from_tensors((x, LABELS))
    values = model.evaluate(data, verbose=0, return_dict=True)
    assert values["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert model.test_on_batch(x, LABELS) == pytest.approx(values["loss"])


def test_evaluate_leaves_the_queue_alone(tiny_backbone) -> None:
    model = methods.diva(
        tiny_backbone, embedding_dim=8, tasks=("discriminative", "dance"),
        queue_size=24, loss="contrastive",
    )  # fmt: skip
    model.compile("sgd", run_eagerly=True)
    x, targets = batch()
    views = {"image": x, "image2": x}
    model.train_on_batch(views, targets)
    before = weights_of(model)
    model.test_on_batch(views, targets)
    assert same(before, weights_of(model))


def test_alternating_learners_are_evaluated_merged(
    tiny_backbone, caplog
) -> None:
    model = methods.divide_and_conquer(
        tiny_backbone, embedding_dim=4, num_learners=2, loss="contrastive"
    )
    model.compile("adam", run_eagerly=True)
    x, targets = batch()
    values = model.test_on_batch(x, targets["label"], return_dict=True)
    expected = model.objective.loss(targets["label"], model(x))
    assert values["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert not told(caplog)


def test_validation_is_logged() -> None:
    model = small()
    history = model.fit(
        vectors(), LABELS[:, None], batch_size=24, epochs=2, verbose=0,
        validation_data=(vectors(1), LABELS[:, None]),
    ).history  # fmt: skip
    assert (
        set(history) == {"loss", "val_loss"} and len(history["val_loss"]) == 2
    )
    data = model.evaluate(vectors(1), LABELS, batch_size=24, verbose=0)
    assert history["val_loss"][-1] == pytest.approx(data, rel=1e-5)


def test_validation_split_keeps_the_last_rows_out() -> None:
    model = small({"name": "proxy_nca", "num_classes": 6})
    history = model.fit(
        vectors(), LABELS, validation_split=0.5, epochs=1, verbose=0
    ).history
    last = model.evaluate(vectors()[24:], LABELS[24:], verbose=0)
    assert history["val_loss"][0] == pytest.approx(last, rel=1e-5)


def test_validation_split_needs_arrays() -> None:
    data = tf.data.Dataset.from_tensors((vectors(), LABELS))
    with pytest.raises(
        ValueError, match="works with arrays only.*validation_data"
    ):
        small().fit(data, validation_split=0.2)


def test_class_without_a_proxy_raises() -> None:
    model = small({"name": "proxy_nca", "num_classes": 6})
    held_out = (vectors(), LABELS + 6)
    message = r"label 6\. A class that was not trained.*RetrievalEvaluation"
    with pytest.raises(ValueError, match=message):
        model.fit(vectors(), LABELS, validation_data=held_out, verbose=0)
    data = tf.data.Dataset.from_tensors(held_out)
    with pytest.raises(ValueError, match=message):
        model.evaluate(data, verbose=0)


# Metrics and weights.


def spread(labels, embeddings):
    """Mean distance to the mean embedding."""
    away = embeddings - keras.ops.mean(embeddings, axis=0)
    return keras.ops.sqrt(keras.ops.sum(away**2, axis=1))


def test_metrics_take_labels_and_embeddings() -> None:
    model = small(metrics=[spread])
    x = vectors()
    data = tf.data.Dataset.from_tensors((x, {"label": LABELS}))
    expected = float(keras.ops.mean(spread(LABELS, model(x))))
    history = model.fit(data, epochs=1, verbose=0, validation_data=data).history
    assert history["spread"][0] == pytest.approx(expected, rel=1e-4)
    assert "val_spread" in history
    assert model.metrics_names[0] == "loss"


@pytest.mark.parametrize("kind", ["arrays", "dataset", "dict", "generator"])
def test_class_weights_scale_the_loss(kind) -> None:
    model = small("contrastive")
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x, label = vectors(), LABELS
    weights = {0: 3.0, 4: 0.0}
    by_example = np.array([weights.get(c, 1.0) for c in label], "float32")
    data = {
        "arrays": x,
        "dataset": tf.data.Dataset.from_tensors((x, label)),
        "dict": tf.data.Dataset.from_tensors((x, {"label": label})),
        "generator": (pair for pair in [(x, label)] * 3),
    }[kind]
    kwargs = {
        "arrays": {"batch_size": 48, "shuffle": False},
        "generator": {"steps_per_epoch": 1, "shuffle": False},
    }.get(kind, {})
    y = label if kind == "arrays" else None
    history = model.fit(data, y, class_weight=weights, verbose=0, **kwargs)
    values = model.objective.loss.per_example(label, model(x))
    expected = float(np.mean(np.array(values) * by_example))
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-4)
    arguments = (x, label, by_example)
    with pytest.raises(ValueError, match="cannot be combined"):
        model.train_on_batch(*arguments, class_weight=weights)


def test_sample_weights_go_with_their_rows() -> None:
    model = small("contrastive")
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    history = model.fit(
        vectors(), LABELS, batch_size=48, verbose=0,
        sample_weight=(LABELS > 2).astype("float32"),
    ).history  # fmt: skip
    values = np.array(
        model.objective.loss.per_example(LABELS, model(vectors()))
    )
    expected = (values * (LABELS > 2)).mean()
    assert history["loss"][0] == pytest.approx(expected, rel=1e-4)


def logs(**mode) -> list[float]:
    """Logs of `fit` and `evaluate` in a mode of `compile`."""
    keras.utils.set_random_seed(0)
    model = small("contrastive")
    model.compile(keras.optimizers.Adam(0.01), metrics=[spread], **mode)
    column = LABELS[:, None]
    first = model.fit(
        vectors(), column, batch_size=16, validation_data=(vectors(1), column),
        class_weight={0: 3.0, 4: 0.0}, verbose=0,
    ).history  # fmt: skip
    last = model.evaluate(vectors(2), LABELS, verbose=0, return_dict=True)
    values = (*first.values(), *last.values())
    assert "val_spread" in first
    return [float(np.squeeze(x)) for x in values]


@pytest.mark.slow
def test_compiled_logs_equal_eager_ones() -> None:
    eager = logs(run_eagerly=True)
    for jit in (False, True):
        np.testing.assert_allclose(logs(jit_compile=jit), eager, rtol=1e-4)


# Arrays.


class Seen(keras.metrics.Metric):
    """Labels of the batches."""

    batches: list[list[int]] = []

    def update_state(self, labels, embeddings, sample_weight=None):
        self.batches.append(np.array(labels).tolist())

    def result(self):
        return 0.0


def labels_seen(x, y, verbose=0, **kwargs) -> list[list[int]]:
    model = small()
    Seen.batches = []
    model.compile("sgd", metrics=[Seen()], run_eagerly=True)
    model.fit(x, y, verbose=verbose, **kwargs)
    return Seen.batches


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_end_of_data_of_unknown_length_is_no_step() -> None:
    """A plain `keras.Model` counts an update and a batch there, and draws."""
    data = tf.data.Dataset.from_tensor_slices((vectors(), LABELS))
    data = data.shuffle(48, seed=0, reshuffle_each_iteration=False)
    data = data.batch(12, drop_remainder=True)

    def results(data: tf.data.Dataset) -> list:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5,))
        network = keras.Model(inputs, keras.layers.Dropout(0.2)(inputs))
        model = methods.baseline(network, embedding_dim=3)
        model.compile(keras.optimizers.Adam(0.01), jit_compile=False)
        history = model.fit(data, epochs=2, verbose=0).history
        held_out = model.evaluate(data, verbose=0, return_dict=True)
        return [*history.values(), *held_out.values(), *weights_of(model)]

    unknown = data.filter(lambda x, y: True)
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert same(results(data), results(unknown))


def test_arrays_come_in_balanced_batches(caplog) -> None:
    seen = labels_seen(vectors(), LABELS, 2, batch_size=16)
    assert len(seen) == 3
    for labels in seen:
        _, counts = np.unique(labels, return_counts=True)
        assert counts.tolist() == [4, 4, 4, 4]
    (message,) = told(caplog)
    assert "balanced=False" in message


@pytest.mark.parametrize("kind", ["sets", "booleans"])
def test_arrays_of_label_sets_come_in_balanced_batches(kind, caplog) -> None:
    table = np.zeros((48, 3), bool)
    table[np.arange(48), LABELS % 3] = True
    table[::7, 1] = True
    sets = [set(np.flatnonzero(row).tolist()) for row in table]
    seen = labels_seen(vectors(), sets if kind == "sets" else table, 2)
    assert len(seen) == 48 // len(seen[0]) and len(told(caplog)) == 1
    for labels in seen:
        # Ten are drawn for each of three labels.
        assert np.shape(labels) == (30, 3)
        assert np.sum(labels, axis=0).min() >= 10


def test_class_weights_of_label_sets_raise() -> None:
    table = np.ones((48, 3), bool)
    with pytest.raises(ValueError, match="`class_weight` .* one class per"):
        small().fit(vectors(), table, class_weight={0: 2.0})


@pytest.mark.parametrize("how", [{"balanced": False}, {"shuffle": False}])
def test_arrays_come_unbalanced_if_asked(how, caplog) -> None:
    seen = labels_seen(vectors(), LABELS, 2, batch_size=20, **how)
    assert [len(labels) for labels in seen] == [20, 20, 8]
    assert sorted(np.concatenate(seen)) == sorted(LABELS)
    assert not any("fit draws" in message for message in told(caplog))


@pytest.mark.slow
def test_next_fit_continues_the_epochs_of_arrays() -> None:
    def run(*epochs: int) -> list[list[int]]:
        keras.utils.set_random_seed(0)
        model = small()
        Seen.batches = []
        model.compile("adam", metrics=[Seen()], run_eagerly=True)
        for count in epochs:
            keras.utils.set_random_seed(1)
            model.fit(vectors(), LABELS, 12, epochs=count, verbose=0)
        return Seen.batches

    assert run(2) == run(1, 1)


@pytest.mark.slow
def test_strings_are_numbered_and_named() -> None:
    names = np.array(["ant", "bee", "cat", "dog", "emu", "fox"])
    model = small({"name": "proxy_nca", "num_classes": 6})
    model.fit(vectors(), names[LABELS], verbose=0)
    assert dict(model.label_names) == dict(enumerate(names.tolist()))
    # A class keeps its number where only some are there.
    loss = model.evaluate(vectors()[24:], names[LABELS[24:]], verbose=0)
    assert loss == model.evaluate(vectors()[24:], LABELS[24:], verbose=0)
    model.fit(vectors()[24:], names[LABELS[24:]], verbose=0)
    assert dict(model.label_names) == dict(enumerate(names.tolist()))
    # Also in a copy, by the way that a saved model takes.
    again = MetricModel.from_config(json.loads(json.dumps(model.get_config())))
    assert dict(again.label_names) == dict(model.label_names)


# Copies.


@pytest.mark.slow
def test_copies_embed_alike_and_train(tiny_backbone) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    model.compile("adam", run_eagerly=True)
    x, targets = batch()
    model.train_on_batch(x, targets)
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    copies = (cloned, copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    for other in copies:
        assert isinstance(other, MetricModel)
        np.testing.assert_array_equal(other(x), model(x))
        other.compile("adam", run_eagerly=True)
        other.train_on_batch(x, targets)


def stepwise() -> keras.optimizers.schedules.LearningRateSchedule:
    return keras.optimizers.schedules.PiecewiseConstantDecay(
        [2, 8], [1e-2, 1e-3, 1e-4]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "options", "frozen"),
    [
        (
            lambda: keras.optimizers.Adam(
                stepwise(), gradient_accumulation_steps=2
            ),
            {"freeze_steps": 4},
            False,
        ),
        (
            lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.RMSprop()
            ),
            {
                "loss": {
                    "name": "margin",
                    "learn_beta": True,
                    "num_classes": 6,
                },
                "loss_weights": {"metric": "learned"},
            },
            False,
        ),
        (lambda: keras.optimizers.SGD(0.1, 0.9, use_ema=True), {}, True),
    ],
)
def test_weights_files_hold_the_optimizer(
    optimizer, options, frozen, tmp_path
) -> None:
    """Training continues bit for bit as if it had not stopped."""
    first, second = small(**options), small(**options)
    for model in (first, second):
        model.compile(optimizer(), run_eagerly=True)
        model.backbone.trainable = not frozen
    for seed in range(3):
        first.train_on_batch(vectors(seed), LABELS)
    path = tmp_path / "model.weights.h5"
    first.save_weights(path)
    second.load_weights(path)
    assert int(second.optimizer.iterations) == int(first.optimizer.iterations)
    assert same(weights_of(first), weights_of(second))
    for model in (first, second):
        model.train_on_batch(vectors(3), LABELS)
    assert same(weights_of(first), weights_of(second))


def test_weights_files_do_not_depend_on_names(tmp_path) -> None:
    """Keras numbers layers; that of the head is always called "dense"."""

    def named(name: str) -> MetricModel:
        inputs = keras.Input((5,))
        features = keras.layers.Dense(4, name=name)(inputs)
        return methods.baseline(
            keras.Model(inputs, features), embedding_dim=3, loss="contrastive"
        )

    models = [named("dense"), named("dense_1")]
    for first, second in (models, models[::-1]):
        first.save_weights(tmp_path / "model.weights.h5")
        second.set_weights([x + 1 for x in second.get_weights()])
        second.load_weights(tmp_path / "model.weights.h5")
        assert same(first.get_weights(), second.get_weights())


@pytest.mark.slow
def test_loaded_model_continues_its_draws(tmp_path) -> None:
    model = small({"name": "margin", "seed": 1})
    model.train_on_batch(vectors(), LABELS)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for x in (model, loaded):
        for _ in range(2):
            x.train_on_batch(vectors(), LABELS)
    assert same(model.get_weights(), loaded.get_weights())


# Epochs.


class Interrupt(keras.callbacks.Callback):
    """Interrupts a training in its third epoch, after a step or before."""

    def __init__(self, batch: int | None = None) -> None:
        super().__init__()
        self.batch = batch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if epoch == 2 and self.batch is None:
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 2 and self.batch == batch:
            raise KeyboardInterrupt


class Plans(ClassBalanced):
    """Records the planned epochs."""

    planned: list[int] = []

    def plan(self, epoch):
        self.planned.append(epoch)
        return super().plan(epoch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frequency", "steps"), [("epoch", [None]), (1, [0, 1])]
)
def test_restored_training_continues_with_the_same_bits(
    frequency, steps, tmp_path
) -> None:
    def fit(*callbacks) -> MetricModel:
        keras.utils.set_random_seed(0)
        sampler = Plans(LABELS, batch_size=12, steps_per_epoch=3)
        model = small({"name": "margin", "seed": 1})
        data = pipeline(ArraySet(vectors(), LABELS), sampler)
        model.fit(data, epochs=4, verbose=0, callbacks=list(callbacks))
        return model

    whole = fit()
    Plans.planned = []

    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(str(tmp_path), frequency)

    for step in steps:
        with pytest.raises(KeyboardInterrupt):
            fit(backup(), Interrupt(step))
    resumed = fit(backup())
    # The rest of the epoch is planned again.
    again = [2] * (len(steps) if frequency == 1 else 0)
    assert Plans.planned == [0, 1, 2, *again, 3]
    assert same(whole.get_weights(), resumed.get_weights())
    assert resumed.optimizer.iterations == 4 * 3


@pytest.mark.parametrize("prefetched", [False, True])
def test_steps_per_epoch_of_fit_raises_with_a_plan(
    images, tiny_backbone, prefetched
) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    model.compile("adam")
    sampler = ClassBalanced(images.labels, batch_size=12)
    data = pipeline(images, sampler, size=16)
    if prefetched:
        data = data.map(lambda x, y: (x, y)).prefetch(2)
    with pytest.raises(
        ValueError, match=r"ClassBalanced\(…, steps_per_epoch=3"
    ):
        model.fit(data, steps_per_epoch=3)
    assert sampler.epoch == 0
