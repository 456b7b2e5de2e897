"""Runs on a disk that is full: the result says of which model it is."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

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
