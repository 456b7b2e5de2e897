import csv
import dataclasses
import json
import os
from importlib.util import find_spec

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from keras_dml import evaluation, recipes, runs
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.recipes.data_sections import Data
from keras_dml.runs.folder import METRICS, check_output, load_outcome
from keras_dml.utils.files import one_at_a_time
from tests.recipes.builds import data_of
from tests.runs.small_run import METHODS, write_recipe

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs tensorboard"
)


def start(tmp_path, *settings):
    recipe = recipes.load(write_recipe(tmp_path), settings)
    return recipe, tmp_path / "run"


def metrics_of(folder) -> list[dict[str, str]]:
    with (folder / METRICS).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(commanded):
    return commanded.outcome, commanded.folder


def test_run_writes_all_files(finished) -> None:
    outcome, folder = finished
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock", "best.keras", "last.keras", "metrics.csv", "queries.npz",
        "recipe.yaml", "result.json", "summary.md",
    ]  # fmt: skip
    rows = metrics_of(folder)
    assert [row["epoch"] for row in rows] == ["0", "1"]
    values = [float(row["val_map@r"]) for row in rows]
    assert outcome.monitored == max(values)
    assert outcome.best_epoch == values.index(max(values)) + 1


@pytest.mark.slow
def test_saved_model_gives_the_same_results_and_heeds_cameras(finished) -> None:
    """A query whose only match is from its own camera finds nothing."""
    outcome, folder = finished
    recipe, model = runs.load_recipe(folder), runs.load_model(folder)
    splits = data_of(recipe)
    assert runs.measure(recipe, model, splits) == outcome.after
    rows, labels = np.arange(len(splits.test)), splits.test.labels
    cameras = np.where(rows % 6 < 5, 0, 1)
    queries, gallery = rows[rows % 6 == 0], rows[rows % 6 > 0]
    points = evaluation.embed(model, splits.test)
    hits = 0
    for query in queries:
        is_other = labels[gallery] != labels[query]
        is_other |= cameras[gallery] != cameras[query]
        candidates = gallery[is_other]
        nearest = candidates[np.argmax(points[candidates] @ points[query])]
        hits += labels[nearest] == labels[query]
    divided = dataclasses.replace(
        splits, query_rows=queries, gallery_rows=gallery, cameras=cameras
    )
    results = runs.measure(recipe, model, divided)
    assert results["recall@1"] == hits / len(queries)


def test_result_and_summary_hold_the_measurements(finished) -> None:
    outcome, folder = finished
    result = json.loads((folder / "result.json").read_text())
    assert result["after"] == outcome.after
    assert result["images"] == {"train": 24, "validation": 12, "test": 36}
    summary = (folder / "summary.md").read_text()
    for name, value in outcome.after.items():
        before = outcome.before[name]
        row = f"| {name} | {before:.4f} | {value:.4f} | "
        assert row + outcome.verdicts[name] in summary
    assert "images of each cluster" in summary
    assert "learning_rate: 0.001" in summary
    assert "- map@r: precision at each hit among the R nearest" in summary


def test_outcome_loads_with_the_values_of_each_query(finished) -> None:
    outcome, folder = finished
    again = load_outcome(folder)
    assert again.environment["keras"] == keras.__version__
    assert again.environment["hardware"].endswith(("core", "cores"))
    assert again.test_set == outcome.test_set
    assert again.to_dict() == json.loads(json.dumps(outcome.to_dict()))
    assert again.recipe == outcome.recipe
    kept = again.after
    assert dict(kept) == outcome.after
    assert list(kept.query_rows) == list(range(36))
    for name in ("recall@1", "map@r", "r_precision"):
        np.testing.assert_allclose(
            kept.per_query[name], outcome.after.per_query[name], rtol=1e-6
        )
        assert kept.per_query[name].mean() == pytest.approx(kept[name])
    means = outcome.after.per_class("map@r")
    assert kept.per_class("map@r") == pytest.approx(means, rel=1e-6)
    assert all(isinstance(name, str) for name in means)


@pytest.mark.parametrize(
    "setting",
    [
        "data.path=/nowhere",
        "batches.classes_per_batch=50",
        pytest.param(
            'augmentation.augment={"keras.ops:sum": {axis: 0}}',
            marks=pytest.mark.slow,
        ),
    ],
)
def test_mistake_leaves_no_folder_and_replaces_no_run(
    setting, tmp_path, monkeypatch
) -> None:
    recipe, folder = start(tmp_path, setting)
    with pytest.raises((ValueError, OSError)):
        runs.train(recipe, folder, verbose=0)
    assert not folder.exists()
    runs.create_folder(folder, recipe)
    (folder / "best.keras").write_text("precious")
    with pytest.raises((ValueError, OSError)):
        runs.train(recipe, folder, verbose=0, overwrite=True)
    assert (folder / "best.keras").read_text() == "precious"
    # An output that exists is refused before data are read.
    monkeypatch.setattr(Data, "load", None)
    with pytest.raises(FileExistsError, match="--overwrite"):
        runs.train(recipe, folder, verbose=0)


@pytest.mark.slow
def test_two_runs_do_not_share_a_folder(finished, tmp_path) -> None:
    outcome, folder = finished
    before = {x.name: x.read_bytes() for x in folder.iterdir()}
    with one_at_a_time(folder, "run"):
        with pytest.raises(BlockingIOError, match=rf"process {os.getpid()} on"):
            runs.train(outcome.recipe, folder, verbose=0, overwrite=True)
    for name, content in before.items():
        assert (folder / name).read_bytes() == content or name == ".lock"
    # Files of a killed run block nobody.
    (tmp_path / ".lock").write_text("process 1 on nowhere")
    check_output(tmp_path)


def read_events(folder) -> dict[str, dict[int, object]]:
    """The summaries in a folder, by name and step."""
    summaries: dict[str, dict[int, object]] = {}
    for path in folder.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                tensor = tf.make_ndarray(value.tensor)
                summaries.setdefault(value.tag, {})[event.step] = tensor
    return summaries


@pytest.mark.slow
@needs_tensorboard
def test_tensorboard_leaves_training_unchanged(finished, tmp_path) -> None:
    outcome, unlogged = finished
    recipe, folder = start(tmp_path)
    logged = runs.train(recipe, folder, verbose=0, log=["tensorboard"])
    rows, expected = metrics_of(folder), metrics_of(unlogged)
    for row in (*rows, *expected):
        assert float(row.pop("recluster_seconds")) >= 0
    assert rows == expected
    assert logged.after == outcome.after
    sizes = [[d["sizes"] for d in x.divisions] for x in (logged, outcome)]
    assert sizes[0] == sizes[1] != []
    train = read_events(folder / "tensorboard" / "train")
    validation = read_events(folder / "tensorboard" / "validation")
    for epoch, row in enumerate(rows):
        loss = float(train["epoch_loss"][epoch])
        assert loss == pytest.approx(float(row["loss"]))
        value = float(validation["epoch_map@r"][epoch])
        assert value == pytest.approx(float(row["val_map@r"]))
    assert (folder / "tensorboard" / "projector_config.pbtxt").exists()


@pytest.mark.slow
@needs_tensorboard
@pytest.mark.parametrize("epochs", [0, 1])
def test_ctrl_c_leaves_a_complete_log_and_a_model(
    epochs, tmp_path, monkeypatch
) -> None:
    recipe, folder = start(tmp_path, "epochs=5", METHODS["baseline"])
    measure = RetrievalEvaluation.measure

    def interrupt(self) -> dict[str, float]:
        if len(self.model.history.epoch) == epochs:
            raise KeyboardInterrupt
        return measure(self)

    monkeypatch.setattr(RetrievalEvaluation, "measure", interrupt)
    outcome = runs.train(recipe, folder, verbose=0, log=["tensorboard"])
    assert outcome.interrupted
    assert outcome.best_epoch == (epochs or None)
    assert (outcome.images_per_second is None) == (not epochs)
    summary = (folder / "summary.md").read_text()
    assert "Interrupted" in summary
    assert ("No epoch was completed" in summary) == (not epochs)
    assert isinstance(runs.load_model(folder, "last"), keras.Model)
    assert (folder / "tensorboard" / "projector_config.pbtxt").exists()
