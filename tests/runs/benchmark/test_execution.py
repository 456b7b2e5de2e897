"""The process of a run, where it does not go well."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from keras_dml import recipes
from keras_dml.pools.sharing import THREADS
from keras_dml.runs.benchmark import worker
from keras_dml.runs.benchmark.execution import Workers
from keras_dml.runs.benchmark.plan import Run
from tests.runs.small_run import METHODS, RECIPE, write_recipe


@pytest.fixture
def run(tmp_path) -> Run:
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.format(folder="nowhere"))
    return Run(recipes.load(path), tmp_path / "small" / "seed-0")


def execute(run: Run) -> str | None:
    with Workers() as workers:
        workers.start(run)
        ended, error = workers.first_ended()
    assert ended is run
    return error


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


def several(run: Run, number: int) -> list[Run]:
    return [
        replace(run, folder=run.folder.with_name(f"seed-{seed}"))
        for seed in range(number)
    ]


def test_ctrl_c_ends_all_processes(run, tmp_path, monkeypatch) -> None:
    instead_of_python(f"touch {tmp_path}/$$.pid; exec sleep 60", tmp_path,
                      monkeypatch)  # fmt: skip
    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        for each in several(run, 2):
            workers.start(each)
        while len(list(tmp_path.glob("*.pid"))) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt
    for path in tmp_path.glob("*.pid"):
        assert not Path(f"/proc/{path.stem}").exists()


def test_the_first_that_ends_comes_first(run, tmp_path, monkeypatch) -> None:
    instead_of_python(
        f"echo $$ > {tmp_path}/pid; while [ -e {tmp_path}/wait ]; do "
        f"sleep 0.01; done; exit 3", tmp_path, monkeypatch
    )  # fmt: skip
    slow, quick = several(run, 2)
    (tmp_path / "wait").touch()
    with Workers(2) as workers:
        workers.start(slow)
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        instead_of_python("exit 4", tmp_path, monkeypatch)
        workers.start(quick)
        assert workers.runs == [slow, quick]
        ended, error = workers.first_ended()
        assert ended is quick and error is not None
        assert "ended with status 4" in error and "seed-1.log" in error
        assert workers.runs == [slow]
        (tmp_path / "wait").unlink()
        ended, error = workers.first_ended()
        assert ended is slow and error is not None
        assert "ended with status 3" in error
        assert workers.runs == []


def test_sigterm_reaches_all_processes(run, tmp_path, monkeypatch) -> None:
    """And the benchmark ends once all of them have."""
    instead_of_python(
        f"trap 'sleep 0.2; touch {tmp_path}/$$.saved; exit 75' TERM; "
        f"touch {tmp_path}/$$.pid; while :; do sleep 0.01; done",
        tmp_path, monkeypatch,
    )  # fmt: skip
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised, Workers(2) as workers:
        for each in several(run, 2):
            workers.start(each)
        while len(list(tmp_path.glob("*.pid"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        workers.first_ended()
    assert raised.value.code == 75
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_between_two_runs(run) -> None:
    with pytest.raises(SystemExit) as raised, Workers() as workers:
        os.kill(os.getpid(), signal.SIGTERM)
        workers.start(run)
    assert raised.value.code == 75
    assert not run.log.exists()


@pytest.mark.parametrize(
    ("jobs", "own", "seen"),
    [(1, None, [""] * 4), (2, None, ["4"] * 4),
     (16, None, ["1"] * 4), (2, "3", ["4", "4", "4", "3"])],
)  # fmt: skip
def test_several_share_the_cores(
    jobs, own, seen, run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(
        "keras_dml.runs.benchmark.execution.usable_cores", lambda: 8
    )
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(THREADS[-1], own)
    shown = " ".join(f'"${name}"' for name in THREADS)
    instead_of_python(f"printf '%s\\n' {shown} >&2; exit 3", tmp_path,
                      monkeypatch)  # fmt: skip
    with Workers(jobs) as workers:
        workers.start(run)
        workers.first_ended()
    assert run.log.read_text().split("\n")[:-1] == seen


def test_those_at_work_have_different_gpus(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "keras_dml.runs.benchmark.execution.gpu_of",
        lambda number: {"CUDA_VISIBLE_DEVICES": str(number)},
    )
    instead_of_python('echo "$CUDA_VISIBLE_DEVICES" >&2; read order; exit 3',
                      tmp_path, monkeypatch)  # fmt: skip
    runs = several(run, 3)
    with Workers(2) as workers:
        for each in runs[:2]:
            workers.start(each)
        workers.first_ended()
        workers.start(runs[2])
        beside = workers.runs[0]
        for _ in range(2):
            workers.first_ended()
    assert [each.log.read_text() for each in runs[:2]] == ["0\n", "1\n"]
    assert {x.log.read_text() for x in (beside, runs[2])} == {"0\n", "1\n"}


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


def test_an_error_is_the_answer() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", worker.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b'{"order": "of another version"}\n')
        process.stdin.flush()
        error = json.load(process.stdout)["error"]
        assert error.startswith("TypeError: ") and "'order'" in error
        assert b"Traceback" in process.stderr.read()


@pytest.mark.slow
def test_sigterm_is_passed_on_and_the_run_goes_on(tmp_path) -> None:
    path = write_recipe(tmp_path)
    recipe = recipes.load(path, ("epochs=4", METHODS["baseline"]))
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
    assert len((run.folder / "metrics.csv").read_text().split()) == 5


@pytest.mark.slow
def test_models_that_cannot_be_built(tmp_path) -> None:
    path = write_recipe(tmp_path)
    changes = {
        "fine": (),
        "layer": ("backbone.output=gone",),
        "files": ("data.path=gone", "backbone.name=gone.keras"),
    }
    loaded = [
        recipes.load(path, (f"name={name}", *settings))
        for name, settings in changes.items()
    ]
    runs = [Run(x, tmp_path / x.name) for x in loaded]
    with Workers() as workers:
        told = workers.try_out(runs)
        assert workers.runs == []
    assert told is not None
    assert re.match("layer: .*`output`.*\nfiles: .*cannot be trained", told)
    assert "gone.keras" in told and "'gone' does not exist" in told
