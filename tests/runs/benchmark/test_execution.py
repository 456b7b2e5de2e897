"""The process of a run, where it does not go well."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from keras_dml import recipes
from keras_dml.runs.benchmark import worker
from keras_dml.runs.benchmark.execution import execute
from keras_dml.runs.benchmark.plan import Run
from tests.runs.small_run import METHODS, RECIPE, write_recipe


@pytest.fixture
def run(tmp_path) -> Run:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(folder="nowhere"))
    return Run(recipes.load(path), tmp_path / "small" / "seed-0")


def instead_of_python(script: str, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -9 $$", "SIGKILL.*memory.*seed-0.log"),
        ("kill -11 $$", "SIGSEGV; see"),
        ("echo words >&2; exit 3", "ended with status 3 and no result"),
    ],
)
def test_a_process_that_dies(
    script, message, run, tmp_path, monkeypatch
) -> None:
    instead_of_python(script, tmp_path, monkeypatch)
    error = execute(run)
    assert error is not None
    assert re.search(message, error)
    assert run.log.exists()


def test_what_is_printed_is_in_the_log(run, tmp_path, monkeypatch) -> None:
    instead_of_python("echo words >&2; exit 3", tmp_path, monkeypatch)
    execute(run)
    assert run.log.read_text() == "words\n"


def test_ctrl_c_ends_the_process(run, tmp_path, monkeypatch) -> None:
    instead_of_python(f"echo $$ > {tmp_path}/pid; exec sleep 60", tmp_path,
                      monkeypatch)  # fmt: skip

    def interrupted(*args):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_dml.runs.benchmark.execution._ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(run)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_ends_with_the_benchmark(run) -> None:
    """Its standard input is closed when the benchmark is killed."""
    process = subprocess.Popen(
        [sys.executable, "-P", worker.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    order = {
        "recipe": recipes.dump(run.recipe),
        "folder": str(run.folder),
        "save_every": None,
    }
    answer, _ = process.communicate(json.dumps(order).encode() + b"\n", 30)
    assert (answer, process.returncode) == (b"", 1)
    assert not run.folder.exists()


@pytest.mark.slow
def test_an_error_is_the_answer(run) -> None:
    error = execute(run)
    assert error is not None
    assert error.startswith("FileNotFoundError: ") and "nowhere" in error
    assert "Traceback" in run.log.read_text()
    assert not run.folder.exists()


@pytest.mark.slow
def test_sigterm_is_passed_on_and_the_run_goes_on(tmp_path) -> None:
    path = write_recipe(tmp_path)
    recipe = recipes.load(path, ("epochs=8", METHODS["baseline"]))
    run = Run(recipe, tmp_path / "small" / "seed-0", save_every="1")

    def terminate() -> None:
        while not list((run.folder / "state").glob("state-*.npz")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    waiting = threading.Thread(target=terminate)
    waiting.start()
    with pytest.raises(SystemExit) as raised:
        execute(run)
    waiting.join()
    assert raised.value.code == 75
    assert "SIGTERM: training stops here" in run.log.read_text()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert execute(run) is None
    assert len((run.folder / "metrics.csv").read_text().split()) == 9
