"""Runs on a disk that is full: the result says of which model it is."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_dml.runs.folder import load_outcome
from tests.cli.test_commands import run
from tests.runs.small_run import METHODS, write_recipe

# Room for one model of 1.3 MB and little else, in a file system of its own.
IN_LITTLE_ROOM = """
mount -t tmpfs -o size=2m tmpfs "$1" || exit 99
shift
cd "$1" && shift && "$@"
"""


def may_mount() -> bool:
    """Whether a process may have file systems of its own here."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0


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


TRAIN_AND_LOOK = """
import sys
from unittest import TestCase
from click.testing import CliRunner
from keras_dml.cli import main
from keras_dml.runs.folder import load_outcome
trained = CliRunner().invoke(main, ["train", *sys.argv[1:]])
assert trained.exit_code == 1, trained.output
outcome = load_outcome("run")
assert outcome.best_epoch is None, outcome
assert outcome.measured == "last.keras of epoch 1", outcome.measured
assert set(outcome.unsaved) == {"best.keras", "last.keras"}, outcome.unsaved
assert "last.keras of epoch 1" in trained.output
with TestCase().assertLogs("keras_dml.runs") as logs:
    again = CliRunner().invoke(main, ["evaluate", "run"])
assert again.exit_code == 0, again.output
assert "has no best.keras; last.keras is used" in logs.output[0], logs.output
for value in outcome.after.values():
    assert f"{value:.4f}" in again.output
"""


@pytest.mark.slow
@pytest.mark.skipif(not may_mount(), reason="needs a file system of its own")
def test_a_disk_with_room_for_one_model(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-c", TRAIN_AND_LOOK]
    command += [str(write_recipe(tmp_path)), "--output", "run"]
    command += ["--set", "epochs=2", "--set", METHODS["baseline"]]
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", IN_LITTLE_ROOM, "sh", disk, disk]
        + command,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
