import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.callbacks import Checkpoint, Resume, RetrievalEvaluation
from keras_dml.callbacks.logs import is_due
from keras_dml.data import ArraySet, ClassBalanced, pipeline
from keras_dml.evaluation import Protocol, evaluate
from tests.conftest import blobs
from tests.model.test_keras_contract import LABELS, small, vectors


def fit(backbone, *callbacks, epochs: int):
    images = blobs(4, 6)
    model = methods.baseline(backbone, embedding_dim=8, loss="contrastive")
    model.compile(keras.optimizers.SGD(1e-2), run_eagerly=True)
    sampler = ClassBalanced(
        images.labels, classes_per_batch=3, images_per_class=3
    )
    batches = pipeline(images, sampler, size=16, channels=1, crop="center")
    history = model.fit(
        batches, epochs=epochs, callbacks=list(callbacks), verbose=0
    )
    return model, history.history


def test_logged_values_equal_those_of_evaluate(tiny_backbone) -> None:
    held_out = blobs(5, 6, seed=9)
    callback = RetrievalEvaluation(held_out)
    model, history = fit(tiny_backbone, callback, epochs=2)
    results = evaluate(model, held_out, metrics=("recall@1", "map@r"))
    assert len(history["val_recall@1"]) == 2
    assert history["val_recall@1"][-1] == results["recall@1"]
    assert history["val_map@r"][-1] == results["map@r"]
    assert callback.seconds > 0
    assert history["loss"][0] > 0  # Metrics of training are left alone.


@pytest.mark.slow
def test_checkpoint_and_early_stopping_of_keras_use_its_values(
    tiny_backbone, tmp_path
) -> None:
    path = tmp_path / "best.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(path), monitor="val_map@r", mode="max", save_best_only=True
    )
    stop = keras.callbacks.EarlyStopping(
        monitor="val_recall@1", mode="max", patience=1, min_delta=10
    )
    evaluation = RetrievalEvaluation(blobs(5, 6, seed=9))
    _, history = fit(tiny_backbone, evaluation, checkpoint, stop, epochs=5)
    assert len(history["loss"]) == 2
    assert path.exists()


class Told(RetrievalEvaluation):
    """Returns scripted values, one for each measured epoch."""

    def __init__(self, *values: float, every: int, data=None) -> None:
        data = ArraySet(vectors(), LABELS) if data is None else data
        super().__init__(data, every=every)
        self.values = list(values)

    def measure(self) -> dict[str, float]:
        value = self.values.pop(0)
        return {"val_recall@1": value, "val_map@r": value}


def train(*callbacks, epochs: int, **options):
    network = small()
    network.run_eagerly = True
    history = network.fit(
        vectors(), LABELS, batch_size=48, epochs=epochs, verbose=0,
        callbacks=list(callbacks), **options,
    )  # fmt: skip
    return network, history.history


def test_due_epochs_end_a_period_or_the_training() -> None:
    due = [epoch for epoch in range(8) if is_due(epoch, 3, 8)]
    assert due == [2, 5, 7]


@pytest.mark.slow
def test_only_first_last_and_due_epochs_are_logged(tmp_path) -> None:
    path = tmp_path / "log.csv"
    callback = Told(0.1, 0.3, 0.5, 0.7, 0.9, every=3)
    network, history = train(
        callback, keras.callbacks.CSVLogger(str(path)), epochs=5
    )
    assert history["val_map@r"] == [0.1, 0.3, 0.5]
    assert len(history["loss"]) == 5
    with path.open() as file:
        rows = [row["val_map@r"] for row in csv.DictReader(file)]
    assert rows == ["0.1", "NA", "0.3", "NA", "0.5"]
    # Another training measures its first epoch as well.
    again = network.fit(
        vectors(), LABELS, epochs=2, verbose=0, callbacks=[callback]
    )
    assert again.history["val_map@r"] == [0.7, 0.9]


@pytest.mark.slow
def test_patience_counts_measurements() -> None:
    data = tf.data.Dataset.from_tensor_slices((vectors(), LABELS)).batch(8)
    evaluation = Told(0.5, 0.4, 0.4, 0.4, 0.4, every=3, data=data)
    stop = keras.callbacks.EarlyStopping("val_map@r", patience=2, mode="max")
    _, history = train(evaluation, stop, epochs=9)
    assert len(history["loss"]) == 6  # Measured after 1, 3 and 6.


@pytest.mark.filterwarnings("ignore:Learning rate reduction is conditioned")
def test_rates_are_reduced_by_measurements() -> None:
    reduce = keras.callbacks.ReduceLROnPlateau(
        "val_map@r", patience=2, factor=0.5, mode="max", min_delta=0
    )
    evaluation = Told(0.5, 0.4, 0.4, 0.4, every=2)
    _, history = train(evaluation, reduce, epochs=6)
    rates = np.array(history["learning_rate"]) / history["learning_rate"][0]
    np.testing.assert_allclose(rates, [1, 1, 1, 1, 0.5, 0.5])


@pytest.mark.slow
def test_both_checkpoints_keep_the_best_model(tmp_path) -> None:
    """Keras's checkpoint used to overwrite it in unmeasured epochs."""
    saved = []

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None) -> None:
            saved.append(self.model.get_weights()[0])

    best, pattern = (
        tmp_path / "best.weights.h5",
        "{epoch}-{val_map@r:.1f}.keras",
    )
    network, _ = train(
        Weights(),
        Told(0.1, 0.9, 0.3, 0.2, every=2),
        keras.callbacks.ModelCheckpoint(
            str(best), "val_map@r", mode="max", save_best_only=True,
            save_weights_only=True,
        ),
        keras.callbacks.ModelCheckpoint(str(tmp_path / pattern), mode="max"),
        own_checkpoint := Checkpoint(tmp_path),
        epochs=6,
    )  # fmt: skip
    network.load_weights(best)
    assert np.array_equal(network.get_weights()[0], saved[1])
    loaded = keras.models.load_model(tmp_path / "best.keras")
    assert np.array_equal(loaded.get_weights()[0], saved[1])
    assert (own_checkpoint.best_epoch, own_checkpoint.best) == (2, 0.9)
    names = sorted(x.name for x in tmp_path.glob("[0-9]*.keras"))
    assert names == ["1-0.1.keras", "2-0.9.keras", "4-0.3.keras", "6-0.2.keras"]


@pytest.mark.slow
def test_epochs_without_validation_are_not_the_best(tmp_path) -> None:
    path = tmp_path / "best.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(path), "val_loss", mode="min", save_best_only=True
    )
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(path.exists())
    )
    data = vectors(1), LABELS
    train(checkpoint, look, epochs=3, validation_data=data, validation_freq=2)
    assert seen == [False, True, True]
    assert "on_epoch_end" not in vars(checkpoint)


@pytest.mark.slow
def test_resumed_training_measures_the_same_epochs(tmp_path) -> None:
    class Killed(Exception):
        pass

    def kill(epoch, logs) -> None:
        if epoch == 1:
            raise Killed

    def callbacks(*values):
        evaluation = Told(*values, every=3)
        stop = keras.callbacks.EarlyStopping(
            "val_map@r", patience=2, mode="max"
        )
        return [evaluation, stop, Checkpoint(tmp_path), Resume(tmp_path / "s")]

    with pytest.raises(Killed):
        train(
            *callbacks(0.5),
            keras.callbacks.LambdaCallback(on_epoch_begin=kill),
            epochs=9,
        )
    _, history = train(*callbacks(0.4, 0.4), epochs=9)
    assert history["val_map@r"] == [0.5, 0.4, 0.4]
    assert len(history["loss"]) == 6


def test_every_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`every`.*every=0"):
        RetrievalEvaluation(blobs(), every=0)


@pytest.mark.slow
def test_options_are_those_of_evaluate(tiny_backbone) -> None:
    held_out, gallery = blobs(5, 6, seed=9), blobs(5, 4, seed=9)
    cameras = np.arange(30) % 2
    asked = [
        {"protocol": "official", "distance": "euclidean"},
        {"gallery": gallery, "exclude": (cameras, np.arange(20) % 2)},
        {"protocol": Protocol(np.arange(10)), "exclude": cameras},
        {"labels": {"a": held_out.labels, "b": held_out.labels // 2}},
        {"prefixes": (4, 8)},
    ]
    callbacks = [
        RetrievalEvaluation(held_out, prefix=f"{i}_", **options)
        for i, options in enumerate(asked)
    ]

    def hits(ranks):
        return ranks.sum(ranks.ranks <= 2)

    several = [hits, "recall@k", "macro/map@r"]
    callbacks.append(RetrievalEvaluation(held_out, metrics=several))
    model, history = fit(tiny_backbone, *callbacks, epochs=1)
    assert {"val_hits", "val_recall@1", "val_recall@8", "val_macro/map@r"} <= (
        set(history)
    )
    for i, options in enumerate(asked):
        results = evaluate(
            model, held_out, metrics=("recall@1", "map@r"), **options
        )
        logged = {k: v[0] for k, v in history.items() if k[:2] == f"{i}_"}
        assert logged == {f"{i}_{k}": v for k, v in results.items()}


@pytest.mark.parametrize(
    "images, options, message",
    [
        (blobs(5, 1), {}, "no such pair"),
        (blobs(5, 2), {"exclude": np.arange(10) // 2}, "no such pair"),
        (blobs(5, 1), {"protocol": "official"}, "`queries` of Protocol"),
        (blobs(), {"protocol": Protocol(np.array([48]))}, "rows of the 48"),
        (blobs(), {"protocol": "offical"}, "`protocol` of Retrieval"),
        (blobs(), {"protocol": "official", "gallery": blobs()}, "Omit one"),
        (blobs(), {"gallery": "photographs"}, "`gallery` of Retrieval"),
        (blobs(), {"gallery": np.eye(4)}, "`gallery_labels` of Retrieval"),
        ("photographs", {}, "`images` of Retrieval"),
        (blobs(), {"distance": "l2"}, "`distance` of Retrieval"),
        (blobs(), {"metrics": ("recal@1",)}, "Did you mean 'recall@1'"),
        (blobs(), {"exclude": np.arange(3)}, "`exclude` of Retrieval"),
        (blobs(), {"labels": np.arange(3)}, "`labels` of Retrieval"),
        (blobs(), {"prefixes": (0,)}, "`prefixes` of Retrieval"),
        (ArraySet(np.eye(4)), {}, "`images.labels` of Retrieval"),
    ],
)
def test_unfit_images_raise_before_training(images, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalEvaluation(images, **options)


def test_too_long_prefix_raises_before_training() -> None:
    callback = RetrievalEvaluation(blobs(), prefixes=(2, 40))
    inputs = keras.Input((5,))
    callback.set_model(keras.Model(inputs, inputs))
    with pytest.raises(ValueError, match="at most the dimension .*, 5"):
        callback.on_train_begin()
