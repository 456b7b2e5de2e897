"""Runs logged to real MLflow and W&B on this machine."""

import json
import struct
import sys

import pytest

from keras_dml import recipes, runs
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.evaluation import bootstrap
from keras_dml.runs.tracking import FILES
from tests.runs.small_run import METHODS, QUICK, write_recipe

# Of MLflow with SQLAlchemy 2.1.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"
)

BLOCK = 32 * 1024
FULL, LAST = 1, 4
"""Kinds of parts: a whole record, and the end of one."""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A client of a new store of MLflow, a SQLite file."""
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "small runs")
    monkeypatch.chdir(tmp_path)
    return mlflow.MlflowClient(uri)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """The folder of W&B without a network."""
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # It reads the environment once.
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path / "wandb"


def only_run(store):
    experiment = store.get_experiment_by_name("small runs")
    (run,) = store.search_runs([experiment.experiment_id])
    return run


def train_in_two_parts(folder, monkeypatch, name, after_first=lambda: None):
    """Interrupts the second epoch of a run, and resumes it."""
    path = write_recipe(folder)
    recipe = recipes.load(path, (METHODS["baseline"], *QUICK, "epochs=2"))
    measure = RetrievalEvaluation.measure

    def interrupt(self) -> dict[str, float]:
        if self.model.history.epoch:
            raise KeyboardInterrupt
        return measure(self)

    with monkeypatch.context() as patched:
        patched.setattr(RetrievalEvaluation, "measure", interrupt)
        assert runs.train(recipe, folder / "run", 0, log=[name]).interrupted
    after_first()
    return runs.train(recipe, folder / "run", 0, log=[name], resume=True)


@pytest.mark.slow
@pytest.mark.tracking
def test_mlflow_has_the_whole_run_also_after_ctrl_c(
    store, tmp_path, monkeypatch
) -> None:
    def is_killed() -> None:
        assert only_run(store).info.status == "KILLED"

    outcome = train_in_two_parts(tmp_path, monkeypatch, "mlflow", is_killed)
    run = only_run(store)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "small"
    assert run.data.params["method.embedding_dim"] == "8"
    for name in ("loss", "val_recall_at_1"):
        history = store.get_metric_history(run.info.run_id, name)
        assert [x.step for x in history] == [0, 1]
    interval = bootstrap(outcome.after)["map@r"]
    assert run.data.metrics["test/map_at_r"] == outcome.after["map@r"]
    assert run.data.metrics["test/map_at_r/high"] == interval.high
    files = store.list_artifacts(run.info.run_id)
    assert {x.path for x in files} >= set(FILES)


@pytest.mark.slow
@pytest.mark.tracking
def test_wandb_has_the_whole_run_also_after_ctrl_c(
    offline, tmp_path, monkeypatch
) -> None:
    outcome = train_in_two_parts(tmp_path, monkeypatch, "wandb")
    first, second = sorted(offline.glob("offline-run-*"))
    assert first.name.split("-")[-1] == second.name.split("-")[-1]
    assert [x["epoch/epoch"] for x in epochs(records(first))] == [0]
    contents = records(second)
    (epoch,) = epochs(contents)
    assert epoch["epoch/epoch"] == 1
    assert {"epoch/loss", "epoch/val_map@r", "epoch/learning_rate"} <= set(
        epoch
    )
    (run,) = [x.run for x in contents if x.HasField("run")][:1]
    assert run.display_name == "small"
    assert values(run.config.update)["epochs"] == 2
    summary = {}
    for x in contents:
        if x.HasField("summary"):
            summary |= values(x.summary.update)
    interval = bootstrap(outcome.after)["map@r"]
    assert summary["test/map@r"] == pytest.approx(outcome.after["map@r"])
    assert summary["test/map@r/low"] == pytest.approx(interval.low)
    (artifact,) = [
        x.artifact
        for x in (
            y.request.log_artifact if y.request.HasField("log_artifact") else y
            for y in contents
        )
        if x.HasField("artifact")
    ]
    assert {x.path for x in artifact.manifest.contents} == set(FILES)


def records(folder) -> list:
    """The records of a run's file, in W&B's own format."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # Its service has written all when it has ended.
    (path,) = folder.glob("run-*.wandb")
    read = wandb_internal_pb2.Record.FromString
    return [read(x) for x in log_records(path.read_bytes())]


def log_records(content: bytes) -> list[bytes]:
    """Records of a log of LevelDB, which has a header of W&B's before it."""
    chunks, at = [b""], 7
    while at < len(content):
        left = BLOCK - at % BLOCK
        if left < 7:  # No header of a part fits into the block.
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        chunks[-1] += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (FULL, LAST):
            chunks.append(b"")
    return chunks[:-1]


def values(items) -> dict:
    return {
        x.key or ".".join(x.nested_key): json.loads(x.value_json) for x in items
    }


def epochs(contents) -> list[dict]:
    rows = [values(x.history.item) for x in contents if x.HasField("history")]
    return [x for x in rows if "epoch/epoch" in x]


@pytest.mark.slow
@pytest.mark.tracking
def test_unreachable_server_does_not_end_the_training(
    store, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    path = write_recipe(tmp_path)
    recipe = recipes.load(path, (METHODS["baseline"], *QUICK))
    outcome = runs.train(recipe, tmp_path / "run", 0, log=["mlflow"])
    assert outcome.best_epoch == 1
    assert caplog.text.count("The run is not logged to mlflow") == 1


def test_unknown_tracker_raises_before_data_are_read(tmp_path) -> None:
    with pytest.raises(ValueError, match="`log` of runs.train must be one of"):
        runs.train(None, tmp_path, log=["neptune"])


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb"])
def test_missing_package_is_named_before_data_are_read(
    name, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"keras-dml\[{name}\]"):
        runs.train(None, tmp_path, log=[name])
