"""What all trackers have in common, on one that remembers."""

import logging

import keras
import pytest

from keras_dml import methods
from keras_dml.callbacks import Resume, RetrievalEvaluation, Tracker
from keras_dml.callbacks.tracker import MOST_FAILURES
from keras_dml.data import ClassBalanced, pipeline
from keras_dml.evaluation import bootstrap, evaluate
from tests.conftest import blobs


class Remembering(Tracker):
    """A tracker whose server can be away."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.opened: list[str | None] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.figures: list[tuple[str, int]] = []
        self.results: dict[str, float] = {}
        self.files: list[str] = []
        self.closed: list[str] = []
        self.away = 0
        self.calls = 0

    def _call(self) -> None:
        self.calls += 1
        if self.away:
            self.away -= 1
            raise ConnectionError("the server is away")

    def _open(self) -> None:
        self._call()
        self.opened.append(self.run_id)
        self.run_id = self.run_id or "run-1"

    def _write_metrics(self, metrics, epoch) -> None:
        self._call()
        self.rows.append((epoch, metrics))

    def _write_results(self, metrics) -> None:
        self._call()
        self.results |= metrics

    def _write_figure(self, name, figure, epoch) -> None:
        self._call()
        assert figure.get_size_inches().min() > 0
        self.figures.append((name, epoch))

    def _write_files(self, paths) -> None:
        self._call()
        self.files += [x.name for x in paths]

    def _close(self, status) -> None:
        self._call()
        self.closed.append(status)


def fit(tracker, *others, epochs=3, images=None):
    images = images or blobs(4, 6)
    keras.utils.set_random_seed(1)
    backbone = keras.Sequential(
        [keras.Input((16, 16, 1)), keras.layers.Conv2D(4, 3, strides=4)]
    )
    model = methods.baseline(backbone, embedding_dim=4, loss="contrastive")
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    sampler = ClassBalanced(
        images.labels, classes_per_batch=3, images_per_class=3
    )
    views = pipeline(images, sampler, size=16, channels=1, crop="center")
    callbacks = [RetrievalEvaluation(images), tracker, *others]
    history = model.fit(views, epochs=epochs, callbacks=callbacks, verbose=0)
    return model, history.history


@pytest.mark.slow
def test_every_epoch_is_logged_as_keras_logs_it() -> None:
    images = blobs(4, 6)
    tracker = Remembering({"epochs": 3}, images=images, every=2)
    _, history = fit(tracker, images=images)
    assert [epoch for epoch, _ in tracker.rows] == [1, 2, 3]
    for name, column in history.items():
        assert [row[name] for _, row in tracker.rows] == column
    assert "val_map@r" in history
    assert tracker.figures == [("retrieval", 2), ("retrieval", 3)]
    assert tracker.closed == ["finished"]
    assert tracker.seconds > 0


@pytest.mark.slow
def test_what_could_not_be_sent_is_sent_later(caplog) -> None:
    tracker = Remembering()
    tracker.away = 2
    with caplog.at_level(logging.WARNING):
        fit(tracker)
    assert [epoch for epoch, _ in tracker.rows] == [1, 2, 3]
    said = [r.message for r in caplog.records if "Remembering" in r.message]
    assert len(said) == 2
    assert all("the server is away" in x for x in said)
    assert all("Training continues" in x for x in said)


@pytest.mark.slow
def test_a_tracker_that_stays_away_is_left_alone_until_the_end() -> None:
    tracker = Remembering()
    tracker.away = 10**6
    _, history = fit(tracker, epochs=4)
    assert len(history["loss"]) == 4
    assert tracker.calls == MOST_FAILURES + 1
    tracker.away = 0
    tracker.finish()
    assert [epoch for epoch, _ in tracker.rows] == [1, 2, 3, 4]
    assert tracker.closed == ["finished"]


def test_results_have_intervals_and_files_are_those_that_are_there(
    tmp_path,
) -> None:
    images = blobs(4, 6)
    tracker = Remembering(finish=False)
    model, _ = fit(tracker, epochs=1, images=images)
    assert tracker.closed == []
    results = evaluate(model, images, metrics=("map@r", "nmi"))
    (tmp_path / "summary.md").write_text("…")
    tracker.log_results(results)
    tracker.log_files([tmp_path / "summary.md", tmp_path / "best.keras"])
    tracker.finish("interrupted")
    interval = bootstrap(results)["map@r"]
    assert tracker.results == {
        "test/map@r": results["map@r"],
        "test/nmi": results["nmi"],
        "test/map@r/low": interval.low,
        "test/map@r/high": interval.high,
    }
    assert tracker.files == ["summary.md"]
    assert tracker.closed == ["interrupted"]


@pytest.mark.slow
def test_a_resumed_training_continues_its_run(tmp_path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None) -> None:
            if epoch == 1:
                raise InterruptedError

        def get_state(self) -> dict[str, bool]:
            return {}

        def set_state(self, state) -> None:
            self.on_epoch_end = lambda *args: None

    first = Remembering()
    with pytest.raises(InterruptedError):
        fit(first, Stop(), Resume(tmp_path))
    second = Remembering()
    second.run_id = "of a stranger"
    fit(second, Stop(), Resume(tmp_path))
    assert second.opened == ["run-1"]
    assert [epoch for epoch, _ in first.rows] == [1, 2]
    assert [epoch for epoch, _ in second.rows] == [2, 3]


@pytest.mark.parametrize("name", ["every", "num_queries"])
def test_numbers_are_checked(name) -> None:
    with pytest.raises(ValueError, match=f"`{name}` of Remembering"):
        Remembering(**{name: 0})
