"""Runs on a disk that is full: the result says of which model it is."""

import errno
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_dml import MetricModel
from keras_dml.runs.folder import load_outcome
from tests.cli.test_commands import run
from tests.runs.small_run import METHODS, write_recipe


@pytest.fixture
def no_model_fits() -> Iterator[None]:
    """No file may be longer than 40 KB, which models are and others not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_no_model_can_be_saved(tmp_path: Path, no_model_fits) -> None:
    output = run(
        "train", str(write_recipe(tmp_path)), "--output",
        str(tmp_path / "run"), "--set", "epochs=2", "--set",
        METHODS["baseline"], code=1,
    )  # fmt: skip
    said = "these metrics belong to the model in memory, which has no file"
    assert said in output
    assert "best.keras could not be saved at epoch 2: File too" in output
    assert "last.keras could not be saved at epoch 2: File too" in output
    assert said in (tmp_path / "run" / "summary.md").read_text()
    outcome = load_outcome(tmp_path / "run")
    assert outcome.best_epoch is None
    assert set(outcome.unsaved) == {"best.keras", "last.keras"}
    assert len((tmp_path / "run" / "metrics.csv").read_text().split()) == 3


@pytest.mark.slow
def test_a_disk_with_room_for_one_model(tmp_path, monkeypatch, caplog) -> None:
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
