"""Runs on a disk that is full: the result says of which model it is."""

import errno
from pathlib import Path

import pytest

from keras_dml import MetricModel
from keras_dml.runs.folder import load_outcome
from tests.cli.test_commands import run
from tests.runs.small_run import METHODS, write_recipe


@pytest.mark.slow
def test_full_disk_leaves_the_last_model(tmp_path, monkeypatch, caplog) -> None:
    save, saved = MetricModel.save, []

    def save_one(model: MetricModel, path: Path) -> None:
        if saved:
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append(path)
        save(model, path)

    folder = tmp_path / "run"
    with monkeypatch.context() as full:
        full.setattr(MetricModel, "save", save_one)
        output = run(
            "train", str(write_recipe(tmp_path)), "--output", str(folder),
            "--set", METHODS["baseline"],
            "--set", "evaluation.metrics=[recall@1, map@r]", code=1,
        )  # fmt: skip
    outcome = load_outcome(folder)
    assert outcome.best_epoch is None
    assert outcome.measured == "last.keras of epoch 1"
    assert outcome.measured in output
    assert set(outcome.unsaved) == {"best.keras", "last.keras"}
    again = run("evaluate", str(folder))
    assert "has no best.keras; last.keras is used instead" in caplog.text
    for value in outcome.after.values():
        assert f"{value:.4f}" in again
