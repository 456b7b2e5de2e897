"""MLflowTracker with MLflow's own store, a SQLite file."""

import sys

import keras
import pytest
from PIL import Image

from keras_dml.callbacks import MLflowTracker, Resume
from keras_dml.evaluation import bootstrap, evaluate
from tests.callbacks.test_tracker import fit
from tests.conftest import blobs

# Of MLflow with SQLAlchemy 2.1.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"
)


def test_missing_mlflow_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"keras-dml\[mlflow\]"):
        MLflowTracker()


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A client of a new store in a folder of its own."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # Artifacts lie in `mlruns` there.
    return mlflow.MlflowClient(f"sqlite:///{tmp_path}/runs.db")


def history(client, run_id, name) -> list[tuple[int, float]]:
    found = client.get_metric_history(run_id, name)
    return [(x.step, x.value) for x in found]


@pytest.mark.slow
@pytest.mark.tracking
def test_a_training_is_a_run_of_mlflow(store, tmp_path) -> None:
    uri = f"sqlite:///{tmp_path}/runs.db"
    images = blobs(4, 6)
    config = {
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "rate_multipliers": {".*/loss/beta": 5.0},
        "many": {f"key_{x}": x for x in range(120)},
        "nothing": None,
    }
    tracker = MLflowTracker(
        config, name="small", images=images, uri=uri, experiment="tests",
        finish=False,
    )  # fmt: skip
    model, logged = fit(tracker, images=images)
    results = evaluate(model, images)
    model.save(tmp_path / "best.keras")
    (tmp_path / "summary.md").write_text("# small")
    tracker.log_results(results)
    tracker.log_files([tmp_path / "best.keras", tmp_path / "summary.md"])
    assert store.get_run(tracker.run_id).info.status == "RUNNING"
    tracker.finish()

    experiment = store.get_experiment_by_name("tests")
    (run,) = store.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.run_name) == (tracker.run_id, "small")
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizer.learning_rate"] == "0.01"
    assert run.data.params["rate_multipliers.._/loss/beta"] == "5.0"
    assert run.data.params["nothing"] == "null"
    assert len(run.data.params) == 124
    assert history(store, tracker.run_id, "loss") == [
        (epoch, value) for epoch, value in enumerate(logged["loss"], 1)
    ]
    steps = history(store, tracker.run_id, "val_recall_at_1")
    assert [value for _, value in steps] == logged["val_recall@1"]
    interval = bootstrap(results)["map@r"]
    for name, value in (
        ("test/map_at_r", results["map@r"]),
        ("test/map_at_r/low", interval.low),
        ("test/map_at_r/high", interval.high),
    ):
        assert run.data.metrics[name] == value
    files = {x.path for x in store.list_artifacts(tracker.run_id)}
    assert files == {"figures", "model", "summary.md"}
    path = store.download_artifacts(tracker.run_id, "model/best.keras")
    again = keras.saving.load_model(path)
    assert evaluate(again, images) == results
    grid = store.download_artifacts(
        tracker.run_id, "figures/retrieval_0003.png"
    )
    with Image.open(grid) as picture:
        assert picture.size[0] > 100


@pytest.mark.slow
@pytest.mark.tracking
def test_a_resumed_training_continues_the_run(store, tmp_path) -> None:
    def tracker():
        return MLflowTracker({"a": 1}, uri=f"sqlite:///{tmp_path}/runs.db")

    first, second = tracker(), tracker()
    fit(first, Resume(tmp_path / "state"), epochs=1)
    fit(second, Resume(tmp_path / "state"), epochs=3)
    (run,) = store.search_runs(["0"])
    assert run.info.run_id == first.run_id == second.run_id
    steps = history(store, run.info.run_id, "loss")
    assert [step for step, _ in steps] == [1, 2, 3]
    assert run.info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.tracking
def test_a_server_that_is_not_there_ends_no_training(
    store, caplog, monkeypatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MLflowTracker(uri="http://127.0.0.1:9")
    _, logged = fit(tracker, epochs=2)
    assert len(logged["loss"]) == 2
    assert "could not begin the run" in caplog.text
