"""Trainings on vectors that are interrupted and resumed."""

import csv
import logging
import os
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.callbacks import Checkpoint, Resume
from keras_dml.data import ArraySet, ClassBalanced, pipeline
from keras_dml.resuming import states
from keras_dml.resuming.states import variables_of
from tests.conftest import quick
from tests.resuming.trainings import bits, different

LABELS = np.repeat(np.arange(6), 8)
EPOCHS, STEPS = 3, 4


def vectors(count: int = 48) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(48, 5))
    return (np.eye(6, 5)[LABELS] + 0.3 * noise).astype("float32")[:count]


def model_of(dropout: float = 0.5, **kwargs: Any) -> keras.Model:
    inputs = keras.Input((5,))
    x = keras.layers.Dropout(dropout)(keras.layers.Dense(8)(inputs))
    arguments = {"embedding_dim": 3, "loss": {"name": "margin", "seed": 1}}
    model = methods.baseline(keras.Model(inputs, x), **arguments)
    metrics = [keras.metrics.MeanMetricWrapper(spread, name="spread")]
    model.compile(keras.optimizers.Adam(0.01), metrics=metrics, **kwargs)
    return model


def spread(labels: Any, embeddings: Any) -> Any:
    return keras.ops.std(embeddings, axis=1)


def batches(seed: int = 0, size: int = 12) -> tf.data.Dataset:
    sampler = ClassBalanced(LABELS, batch_size=size, seed=seed)
    return pipeline(ArraySet(vectors(), LABELS), sampler)


class End(keras.callbacks.Callback):
    """Interrupts a training at the start of a step, or calls a function."""

    def __init__(self, epoch: int, step: int, how: Any = None) -> None:
        super().__init__()
        self.at, self.how = (epoch, step), how
        self._epoch = 0
        self.first: tuple[int, int] | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.first = self.first or (self._epoch, batch)
        if self.at == (self._epoch, batch):
            if self.how is None:
                raise KeyboardInterrupt
            self.how()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.at == (epoch, STEPS):  # Before the state of its end.
            raise KeyboardInterrupt


class Trained(NamedTuple):
    values: dict[str, Any]
    history: keras.callbacks.History


MODELS: dict[str, tuple[keras.Model, list[np.ndarray]]] = {}
"""And what they begin with. Each is traced once, which takes the longest."""


def untrained(**kwargs: Any) -> keras.Model:
    name = repr(kwargs)
    if name not in MODELS:
        keras.utils.set_random_seed(5)
        model = model_of(**kwargs)
        model.optimizer.build(model.trainable_variables)
        MODELS[name] = model, list(map(np.array, variables_of(model)))
    model, values = MODELS[name]
    for variable, value in zip(variables_of(model), values, strict=True):
        variable.assign(value)
    model.label_names = {}
    return model


def fit(*callbacks: Any, data: Any = None, **kwargs: Any) -> Trained:
    model = untrained(**kwargs.pop("model", {}))
    keras.utils.set_random_seed(5)
    data = batches() if data is None else data
    data = data if isinstance(data, tuple) else (data,)
    options = {"epochs": EPOCHS, "verbose": 0, **kwargs}
    history = model.fit(*data, callbacks=list(callbacks), **options)
    return Trained(bits(model), history)


def ended(
    folder: Path, epoch: int, step: int, *callbacks: Any, **kwargs
) -> None:
    """Runs a training that is interrupted before a step."""
    with pytest.raises(KeyboardInterrupt):
        resume = Resume(folder, every=1)
        fit(resume, *callbacks, End(epoch, step), **kwargs)
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger):
            callback.on_train_end()  # Closes the file.


def same(one: Trained, two: Trained) -> bool:
    return different(one.values, two.values) == []


def changed_batches() -> tf.data.Dataset:
    return batches().map(lambda x, y: (2 * x, y)).prefetch(1).take(3)


TRAININGS: dict[str, tuple[Any, tuple[int, int], tuple[int, int]]] = {
    "batches": (dict, (1, 2), (1, 2)),
    "after an epoch": (dict, (0, STEPS), (1, 0)),
    "batches that a user has changed": (
        lambda: {"data": changed_batches()}, (1, 1), (1, 1),
    ),
    "several steps at a time": (
        lambda: {"model": {"steps_per_execution": 3}}, (1, 3), (1, 3),
    ),
    "arrays with weights and strings": (
        lambda: {
            "data": (vectors(), np.array(list("abcdef"))[LABELS]),
            "batch_size": 12,
            "sample_weight": np.linspace(0, 1, 48),
        },
        (1, 1), (1, 1),
    ),
    "arrays in order": (
        lambda: {
            "data": (vectors(), LABELS), "batch_size": 12, "shuffle": False,
        },
        (1, 1), (1, 0),
    ),
}  # fmt: skip
"""Arguments, the step of the interruption, and the first resumed step."""


@pytest.mark.parametrize("name", quick(("batches",), TRAININGS))
def test_training_resumes_bit_for_bit(name, tmp_path) -> None:
    options, at, first = TRAININGS[name]
    ended(tmp_path, *at, **options())
    whole, end = fit(**options()), End(9, 9)
    # The seed of the batches is drawn anew, and another one.
    np.random.seed(1)
    assert same(whole, fit(Resume(tmp_path), end, **options()))
    assert end.first == first


@pytest.mark.slow
def test_keras_callbacks_resume(tmp_path) -> None:
    def callbacks(name: str) -> list[keras.callbacks.Callback]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        kinds = keras.callbacks
        return [
            kinds.ReduceLROnPlateau("loss", patience=1, min_delta=9.0),
            kinds.LearningRateScheduler(lambda _, rate: 0.9 * rate),
            kinds.EarlyStopping(
                "loss", patience=4, min_delta=9.0, restore_best_weights=True
            ),
            kinds.ModelCheckpoint(
                folder / "best.keras", "loss", save_best_only=True, mode="min"
            ),
            kinds.CSVLogger(folder / "log.csv"),
        ]

    def log(name: str) -> list[list[str]]:
        with (tmp_path / name / "log.csv").open() as file:
            return list(csv.reader(file))

    state = tmp_path / "state"
    options = {"epochs": 7, "validation_data": (vectors(), LABELS)}
    whole = fit(*callbacks("whole"), **options)
    for at in ((1, 2), (3, 1)):
        ended(state, *at, *callbacks("killed"), **options)
    resumed = fit(Resume(state), *callbacks("killed"), **options)
    assert same(whole, resumed)
    assert log("whole") == log("killed")
    assert len(log("whole")) == 1 + len(whole.history.epoch)
    assert whole.history.epoch == list(range(5))
    # The training has ended, so nothing is left to resume.
    end = End(9, 9)
    again = fit(Resume(state), *callbacks("killed"), end, **options)
    assert end.first is None
    assert same(whole, again)


def test_log_without_its_rows_raises(tmp_path) -> None:
    def log() -> keras.callbacks.CSVLogger:
        return keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))

    ended(tmp_path / "state", 1, 1, log())
    (tmp_path / "log.csv").write_text("")
    with pytest.raises(ValueError, match="log.csv must contain the rows"):
        fit(Resume(tmp_path / "state"), log())


def test_changes_since_the_state_are_named(tmp_path) -> None:
    ended(tmp_path, 0, 1)

    def refused(message: str, *callbacks: Any, **kwargs: Any) -> None:
        with pytest.raises(ValueError, match=message):
            fit(*(callbacks or (Resume(tmp_path),)), **kwargs)

    refused(r"sampler\.seed: 0 → 4", data=batches(seed=4))
    refused(r"sampler\.batch_size: 12 → 6", data=batches(size=6))
    refused(r"rate: 0\.5 → 0\.2", model={"dropout": 0.2})
    rate = keras.callbacks.LearningRateScheduler(lambda epoch: 0.01)
    refused(
        "callbacks.1: nothing → LearningRateScheduler", rate, Resume(tmp_path)
    )
    identity = {"recipe": {"epochs": 2}}
    refused(r"recipe\.epochs: nothing → 2", Resume(tmp_path, identity=identity))


def test_other_versions_and_data_raise(tmp_path, monkeypatch) -> None:
    ended(tmp_path, 0, 1)
    sampler = ClassBalanced(LABELS, batch_size=12)
    changed_data = pipeline(ArraySet(vectors() + 1, LABELS), sampler)
    with pytest.raises(ValueError, match="data: [0-9a-f]{64} → "):
        fit(Resume(tmp_path), data=changed_data)
    monkeypatch.setattr(states, "version", lambda _: "9.1")
    monkeypatch.setattr(keras, "__version__", "9.0")
    with pytest.raises(
        ValueError, match=r"versions\.keras: .* → 9\.0"
    ) as raised:
        fit(Resume(tmp_path))
    said = str(raised.value)
    assert re.search(r"\n  versions\.keras-dml: .* → 9\.1\n", said)
    assert said.endswith("or another folder to start again.")


def test_other_arrays_and_weights_raise(tmp_path) -> None:
    plain = {"data": (vectors(), LABELS), "shuffle": False, "batch_size": 12}
    weights = {"class_weight": {0: 1.0, 3: 2.0}}

    def refused(message: str, **changed: Any) -> None:
        with pytest.raises(ValueError, match=message):
            fit(Resume(tmp_path), **{**plain, **changed})

    ended(tmp_path, 1, 0, **plain, **weights)
    refused("data: [0-9a-f]{32} → ", data=(vectors() + 1, LABELS), **weights)
    refused(r"class_weight\.3: 2\.0 → 0\.5", class_weight={0: 1, 3: 0.5})
    weight = np.ones(48)
    refused("sample_weight: None → [0-9a-f]{32}", sample_weight=weight)


@pytest.mark.slow
def test_streams_resume_at_the_start_of_an_epoch(tmp_path, caplog) -> None:
    def stream() -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((vectors(), LABELS))
        return data.shuffle(48, seed=1).batch(12)

    with caplog.at_level(logging.INFO, "keras_dml"):
        ended(tmp_path, 1, 2, data=stream())
        assert "at the ends of epochs, and not every 1" in caplog.text
        caplog.clear()
        end = End(9, 9)
        fit(Resume(tmp_path), end, data=stream())
    assert end.first == (1, 0)
    assert "cannot know which batches come next" in caplog.text


def test_full_disk_warns_once(tmp_path, monkeypatch, caplog) -> None:
    savez, is_full = np.savez, [True]

    def write(path, **arrays: Any) -> None:
        savez(path, **arrays)
        if is_full[0]:
            raise OSError(28, "No space left on device")

    def empty() -> None:
        is_full[0] = False

    monkeypatch.setattr(np, "savez", write)
    fit(Resume(tmp_path, every=1), End(1, 1, empty))
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert "No space left on device. Earlier states are kept" in messages[0]
    assert "can be written to" in messages[1]
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_sigterm_writes_a_state_and_exits(tmp_path, caplog) -> None:
    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as raised:
        fit(Resume(tmp_path), End(1, 2, terminate))
    assert raised.value.code == 75
    assert "SIGTERM: training stops here" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    end = End(9, 9)
    fit(Resume(tmp_path), end)
    assert end.first == (1, 3)


@pytest.mark.parametrize("fails_from", [1, 2])
def test_sigterm_on_a_full_disk_names_the_earlier_state(
    fails_from, tmp_path, monkeypatch, caplog
) -> None:
    savez, count = np.savez, [0]

    def write(path, **arrays: Any) -> None:
        count[0] += 1
        if count[0] >= fails_from:
            raise OSError(28, "No space left on device")
        savez(path, **arrays)

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(np, "savez", write)
    with pytest.raises(SystemExit) as raised:
        fit(Resume(tmp_path), End(1, 2, terminate))
    if fails_from == 1:
        assert raised.value.code == 143
        assert "and is lost: no state could be written" in caplog.text
        assert "continues from" not in caplog.text
        return
    assert raised.value.code == 75
    assert "an earlier one: this one could not be written" in caplog.text
    monkeypatch.setattr(np, "savez", savez)
    end = End(9, 9)
    fit(Resume(tmp_path), end)
    assert end.first == (1, 0)


@pytest.mark.parametrize("when", ["in a step", "at the end"])
def test_other_signal_handlers_run_after_the_state_is_written(
    when, tmp_path
) -> None:
    """A signal after the last step is not lost either."""
    seen = []

    def terminate(logs: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    callback = End(0, 1, terminate)
    if when == "at the end":
        callback = keras.callbacks.LambdaCallback(on_train_end=terminate)
    before = signal.signal(
        signal.SIGTERM, lambda *_: seen.append(len(list(tmp_path.iterdir())))
    )
    try:
        fit(Resume(tmp_path), callback, epochs=1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [2]  # A state and the lock.


class Rising(keras.callbacks.Callback):
    """A monitor that improves every epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["rising"] = epoch / 10


@pytest.mark.slow
def test_checkpoint_newer_than_the_state_is_kept(tmp_path) -> None:
    """Interrupts between state and model, and again within that epoch."""

    def interrupted(name: str, epoch: int, step: int) -> Checkpoint:
        checkpoint = Checkpoint(tmp_path / "models", "rising")
        with pytest.raises(KeyboardInterrupt):
            resume = Resume(tmp_path / name)
            fit(resume, Rising(), checkpoint, End(epoch, step))
        return checkpoint

    assert interrupted("state", 1, STEPS).best_epoch == 2
    again = interrupted("state", 1, 2)
    assert (again.best_epoch, again.best, again.last) == (2, 0.1, "epoch 2")
    # Of another training, whose state is from before any model.
    ended(tmp_path / "other", 0, 2, Rising(), Checkpoint(tmp_path, "rising"))
    other = interrupted("other", 1, 0)
    assert (other.best_epoch, other.best, other.last) == (1, 0.0, "epoch 1")


@pytest.mark.parametrize("every", [0, "5 minutes", "0m", "-3", 1.5])
def test_every_must_be_steps_or_a_time(every, tmp_path) -> None:
    with pytest.raises(ValueError, match="`every` of Resume"):
        Resume(tmp_path, every=every)


def test_every_accepts_steps_and_times(tmp_path) -> None:
    callbacks = [Resume(tmp_path, every=x) for x in (200, "200", "1.5m", "2h")]
    assert [(x.every_steps, x.every_seconds) for x in callbacks] == [
        (200, None), (200, None), (None, 90.0), (None, 7200.0),
    ]  # fmt: skip


def test_misuse_raises(tmp_path) -> None:
    plain = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with pytest.raises(
        ValueError, match="Resume must be used with MetricModel"
    ):
        plain.fit(vectors(), LABELS, verbose=0, callbacks=[Resume(tmp_path)])
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    with pytest.raises(ValueError, match="BackupAndRestore. Use Resume alone"):
        fit(Resume(tmp_path), backup)
    other = ClassBalanced(LABELS, batch_size=12)
    with pytest.raises(ValueError, match="`sampler` of Resume"):
        fit(Resume(tmp_path, other))
