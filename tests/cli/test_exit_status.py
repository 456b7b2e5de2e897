"""Tests of exit statuses; those of mistakes are in test_commands.py."""

import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from keras_dml.cli import common, main
from tests.runs.small_run import METHODS, write_recipe

# What starts the tests may have Ctrl-C ignored, as a shell does after "&".
COMMAND = (
    "import signal; signal.signal(2, signal.default_int_handler)\n"
    "import sys; sys.argv[0] = '/usr/bin/keras-dml'\n"
    "from keras_dml.cli import main\n"
    "main()"
)


def test_ctrl_c_exits_130(monkeypatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(common, "import_package", interrupted)
    ended = CliRunner().invoke(main, ["data", "check", "images"])
    assert (ended.exit_code, ended.stderr) == (130, "Interrupted.\n")


def test_bug_exits_1_with_its_traceback(monkeypatch) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(common, "import_package", broken)
    ended = CliRunner().invoke(main, ["data", "check", "images"])
    assert ended.exit_code == 1
    assert isinstance(ended.exception, AssertionError)


@pytest.mark.parametrize(
    "arguments", [["train", "--help"], ["recipes", "list"]]
)
def test_closed_pipe_exits_quietly(arguments: list[str]) -> None:
    """`head` and `less` close the pipe; no noisy package is imported."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        ended = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=nobody,
            stderr=subprocess.PIPE,
        )
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.slow
def test_ctrl_c_during_training_exits_130(tmp_path) -> None:
    """As a shell sends it; a benchmark's tests send SIGTERM."""
    recipe = write_recipe(tmp_path)
    arguments = ["train", str(recipe), "--output", str(tmp_path / "run")]
    arguments += ["--set", METHODS["baseline"]]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments, "--set", "epochs=10000"],
        env=os.environ | {"KERAS_BACKEND": "tensorflow"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        log = tmp_path / "run" / "metrics.csv"
        end = time.monotonic() + 120
        while not log.exists() and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
