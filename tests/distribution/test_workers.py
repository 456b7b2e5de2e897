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


@pytest.fixture(
    scope="module",
    params=["tensorflow", pytest.param("jax", marks=pytest.mark.peers)],
)
def results(request: Any, tmp_path_factory: Any) -> tuple[Any, Any, Any]:
    """What one process, worker 0 and worker 1 found."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"needs {request.param}")
    folder = tmp_path_factory.mktemp("workers")
    ports = free_ports(2)
    given = (0,), (0, *ports), (1, *ports)
    processes = [started(folder, request.param, *x) for x in given]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, said[-3000:]
    finally:
        for process in processes:
            process.kill()
    names = ("0-of-1", "0-of-2", "1-of-2")
    return tuple(dict(np.load(folder / f"{name}.npz")) for name in names)


def test_training_is_that_of_one_process(results) -> None:
    one, *workers = results
    np.testing.assert_array_equal(workers[0]["clusters"], one["clusters"])
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
    assert compared > 120


def test_workers_are_equal_to_the_bit(results) -> None:
    _, first, second = results
    for key, expected in first.items():
        if key.startswith(("weights/", "clusters")):
            np.testing.assert_array_equal(second[key], expected, err_msg=key)


def test_workers_draw_the_same_classes(results) -> None:
    one, *workers = results
    assert 8 < one["drawn"].sum() < 60
    for worker in workers:
        np.testing.assert_array_equal(worker["drawn"], one["drawn"])


def test_the_chief_alone_measures(results) -> None:
    one, first, second = results
    assert len(first["own/held out"]) == len(one["own/held out"]) > 0
    assert len(second["own/held out"]) == 0


def test_each_worker_reads_its_own_rows(results) -> None:
    one, *workers = results
    plan = one["own/plan"]  # (S, B)
    for number, worker in enumerate(workers):
        own = plan[:, number * 4 : number * 4 + 4]
        np.testing.assert_array_equal(
            np.sort(worker["own/planned"]), np.sort(own.ravel())
        )


def test_a_signal_to_one_ends_all_and_all_go_on(results) -> None:
    for found in results:
        assert found["own/status"] == 75
        # Each update is done once, the second before the training ended.
        begun = found["own/begun"].tolist()
        assert begun == sorted({*begun})
        assert len(begun) == 18
        whole = [key for key in found if key.startswith("own/whole/")]
        for key in whole:
            other = found[key.replace("whole", "resumed")]
            np.testing.assert_array_equal(other, found[key], err_msg=key)
        assert len(whole) > 5
    assert (results[1]["own/begun"] == results[2]["own/begun"]).all()


def test_what_only_one_process_can_do_is_refused(results) -> None:
    _, *workers = results
    for worker in workers:
        assert "balanced=True" in str(worker["error/shuffled"])
        assert "evaluation.embed" in str(worker["error/predict"])
        if "error/odd" in worker:  # On JAX.
            assert "the same number of rows" in str(worker["error/odd"])


def test_an_error_of_the_chief_is_told(results) -> None:
    _, first, second = results
    assert str(first["own/error"]) == "OSError: the disk is full"
    assert str(second["own/error"]) == (
        "RuntimeError: Worker 0 failed: the disk is full"
    )
