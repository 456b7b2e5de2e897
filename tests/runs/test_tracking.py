"""Runs that are logged to a tracker: MLflow's own store, a SQLite file."""

import pytest

from keras_dml import recipes, runs
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.evaluation import bootstrap
from keras_dml.runs.tracking import FILES
from tests.callbacks.test_mlflow import pytestmark as suppressed
from tests.runs.small_run import METHODS, QUICK, write_recipe

pytestmark = [suppressed]


@pytest.fixture
def store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "small runs")
    monkeypatch.chdir(tmp_path)
    return mlflow.MlflowClient(uri)


def only_run(store):
    experiment = store.get_experiment_by_name("small runs")
    (run,) = store.search_runs([experiment.experiment_id])
    return run


@pytest.mark.slow
@pytest.mark.tracking
def test_a_run_is_logged_whole_also_after_ctrl_c(
    store, tmp_path, monkeypatch
) -> None:
    path = write_recipe(tmp_path)
    recipe = recipes.load(path, (METHODS["baseline"], *QUICK, "epochs=2"))
    folder = tmp_path / "run"
    measure = RetrievalEvaluation._measure

    def interrupted(self) -> dict[str, float]:
        if self.model.history.epoch:
            raise KeyboardInterrupt
        return measure(self)

    with monkeypatch.context() as patched:
        patched.setattr(RetrievalEvaluation, "_measure", interrupted)
        assert runs.train(recipe, folder, 0, log=["mlflow"]).interrupted
    assert only_run(store).info.status == "KILLED"

    outcome = runs.train(recipe, folder, 0, log=["mlflow"], resume=True)
    run = only_run(store)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "small"
    assert run.data.params["method.embedding_dim"] == "8"
    history = store.get_metric_history(run.info.run_id, "loss")
    assert [x.step for x in history] == [1, 2]
    interval = bootstrap(outcome.after)["map@r"]
    assert run.data.metrics["test/map_at_r"] == outcome.after["map@r"]
    assert run.data.metrics["test/map_at_r/high"] == interval.high
    files = store.list_artifacts(run.info.run_id)
    assert {x.path for x in files} >= set(FILES) - {"best.keras"}
    assert outcome.seconds["trackers"] > 0


def test_an_unknown_tracker_is_refused_before_anything_is_read(
    tmp_path,
) -> None:
    with pytest.raises(ValueError, match="`log` of runs.train must be one of"):
        runs.train(None, tmp_path, log=["neptune"])
