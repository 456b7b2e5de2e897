"""WandbTracker offline: what it writes is read back from its files."""

import json
import struct
import sys

import pytest

from keras_dml.callbacks import Resume, WandbTracker
from keras_dml.evaluation import bootstrap, evaluate
from tests.callbacks.test_tracker import fit
from tests.conftest import blobs

BLOCK = 32 * 1024
FULL, LAST = 1, 4
"""Kinds of parts: a whole record, and the end of one."""


def test_missing_wandb_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"keras-dml\[wandb\]"):
        WandbTracker()


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """W&B as it is without a network; its folder."""
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # It reads the environment once.
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path / "wandb"


def records(folder) -> list:
    """What a run's file says, record by record, in W&B's own format."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # Its service has written all when it has ended.
    (path,) = folder.glob("run-*.wandb")
    read = wandb_internal_pb2.Record.FromString
    return [read(x) for x in log_records(path.read_bytes())]


def log_records(content: bytes) -> list[bytes]:
    """Records of a log of LevelDB, which has a header of W&B's before it."""
    found, at = [b""], 7
    while at < len(content):
        left = BLOCK - at % BLOCK
        if left < 7:  # No header of a part fits into the block.
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        found[-1] += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (FULL, LAST):
            found.append(b"")
    return found[:-1]


def values(items) -> dict:
    return {
        x.key or ".".join(x.nested_key): json.loads(x.value_json) for x in items
    }


def rows(folder) -> list[dict]:
    found = records(folder)
    return [values(x.history.item) for x in found if x.HasField("history")]


@pytest.mark.slow
@pytest.mark.tracking
def test_a_training_is_a_run_of_wandb(offline, tmp_path) -> None:
    images = blobs(4, 6)
    tracker = WandbTracker(
        {"optimizer": {"learning_rate": 0.01}}, name="small", images=images,
        project="tests", finish=False,
    )  # fmt: skip
    model, logged = fit(tracker, images=images)
    results = evaluate(model, images)
    model.save(tmp_path / "best.keras")
    (tmp_path / "summary.md").write_text("# small")
    tracker.log_results(results)
    tracker.log_files([tmp_path / "best.keras", tmp_path / "summary.md"])
    tracker.finish()

    (folder,) = offline.glob(f"offline-run-*-{tracker.run_id}")
    found = records(folder)
    (run,) = [x.run for x in found if x.HasField("run")][:1]
    assert (run.project, run.display_name) == ("tests", "small")
    config = values(run.config.update)
    assert config["optimizer"] == {"learning_rate": 0.01}
    logged_rows = [x for x in rows(folder) if "loss" in x]
    for name in ("loss", "val_recall@1", "val_map@r"):
        assert [x[name] for x in logged_rows] == pytest.approx(logged[name])
    assert [x["epoch"] for x in logged_rows] == [1, 2, 3]
    assert all("retrieval" in str(sorted(x)) for x in logged_rows)
    summary = {}
    for x in found:
        if x.HasField("summary"):
            summary |= values(x.summary.update)
    interval = bootstrap(results)["map@r"]
    assert summary["test/map@r"] == pytest.approx(results["map@r"])
    assert summary["test/map@r/low"] == pytest.approx(interval.low)
    artifacts = {
        x.artifact.type: {y.path for y in x.artifact.manifest.contents}
        for x in (
            y.request.log_artifact if y.request.HasField("log_artifact") else y
            for y in found
        )
        if x.HasField("artifact")
    }
    assert artifacts == {"model": {"best.keras"}, "run": {"summary.md"}}


@pytest.mark.slow
@pytest.mark.tracking
def test_a_resumed_training_continues_the_run(offline, tmp_path) -> None:
    first, second = WandbTracker(), WandbTracker()
    fit(first, Resume(tmp_path / "state"), epochs=1)
    fit(second, Resume(tmp_path / "state"), epochs=3)
    assert first.run_id == second.run_id
    parts = sorted(offline.glob(f"offline-run-*-{first.run_id}"))
    assert [[x["epoch"] for x in rows(part)] for part in parts] == [[1], [2, 3]]
