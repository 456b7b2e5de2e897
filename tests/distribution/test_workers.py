"""Two worker processes do what one process does alone."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 600
Arrays = dict[str, np.ndarray]


def started(
    folder: Path, backend: str, *arguments: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.distribution.workers"]
    return subprocess.Popen(
        [*command, str(folder), *map(str, arguments)],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "KERAS_BACKEND": backend,
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def results_of(backend: str, folder: Path) -> Any:
    """Results of one process, worker 0 and worker 1."""
    ports = free_ports(2)
    worker_arguments = (0,), (0, *ports), (1, *ports)
    processes = [started(folder, backend, *x) for x in worker_arguments]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, said[-3000:]
    finally:
        for process in processes:
            process.kill()
    names = ("0-of-1", "0-of-2", "1-of-2")
    return [dict(np.load(folder / f"{name}.npz")) for name in names]


@pytest.mark.parametrize(
    "backend",
    ["tensorflow", pytest.param("jax", marks=pytest.mark.peers)],
)
def test_two_processes_train_as_one(backend, tmp_path) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    one, *workers = results_of(backend, tmp_path)
    check_training(one, workers)
    check_shares(one, workers)
    check_resumed([one, *workers])
    check_refusals(workers)


def check_training(one: Arrays, workers: list[Arrays]) -> None:
    """Weights and logs are those of one process; workers' are equal bits."""
    compared = 0
    for key, expected in one.items():
        kind, _, name = key.partition("/")
        if kind not in ("logs", "weights") or key.endswith("_seconds"):
            continue
        for worker in workers:
            compared += 1
            apart = worker[key] - expected
            if kind == "logs":
                assert (np.abs(apart) <= 1e-6 * np.abs(expected)).all(), key
            elif expected.dtype.kind == "f":  # Up to rounding.
                moved = np.linalg.norm(expected - one[f"starts/{name}"])
                assert np.linalg.norm(apart) <= 2e-5 * moved, key
            else:
                assert not apart.any(), key
    assert compared > 60
    first, second = workers
    for key, expected in first.items():
        if key.startswith(("weights/", "clusters")):
            np.testing.assert_array_equal(second[key], expected, err_msg=key)
    np.testing.assert_array_equal(first["clusters"], one["clusters"])


def check_shares(one: Arrays, workers: list[Arrays]) -> None:
    """Workers read their own rows, and the chief measures."""
    assert 8 < one["drawn"].sum() < 60
    plan = one["own/plan"]  # (S, B)
    for number, worker in enumerate(workers):
        np.testing.assert_array_equal(worker["drawn"], one["drawn"])
        share = plan[:, number * 4 : number * 4 + 4]
        np.testing.assert_array_equal(
            np.sort(worker["own/planned"]), np.sort(share.ravel())
        )
    measured = [len(x["own/held out"]) for x in (one, *workers)]
    assert measured == [measured[0], measured[0], 0]


def check_resumed(results: list[Arrays]) -> None:
    """SIGTERM to one process ends all at the same step; all resume there."""
    for result in results:
        assert result["own/status"] == 75
        # Each update is done once, the second before the training ended.
        begun = result["own/begun"].tolist()
        assert begun == sorted({*begun})
        assert len(begun) == 18
        whole = [key for key in result if key.startswith("own/whole/")]
        for key in whole:
            other = result[key.replace("whole", "resumed")]
            np.testing.assert_array_equal(other, result[key], err_msg=key)
        assert len(whole) > 5
    assert (results[1]["own/begun"] == results[2]["own/begun"]).all()


def check_refusals(workers: list[Arrays]) -> None:
    for worker in workers:
        assert "balanced=True" in str(worker["error/shuffled"])
        assert "evaluation.embed" in str(worker["error/predict"])
        assert "must be of one machine" in str(worker["error/run"])
        if "error/odd" in worker:  # On JAX.
            assert "the same number of rows" in str(worker["error/odd"])
    first, second = workers
    assert str(first["own/error"]) == "OSError: the disk is full"
    assert str(second["own/error"]) == (
        "RuntimeError: Worker 0 failed: the disk is full"
    )
