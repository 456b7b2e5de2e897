import csv
import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec

import pytest

from keras_dml import runs
from keras_dml.distribution import connect
from keras_dml.runs.folder import load_outcome
from tests.runs.small_run import write_recipe

COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'keras-dml'; "
    "from keras_dml.cli import main; main()",
    "train",
)
PAIR = {"worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"devices": 0}, "`devices` of connect must be an integer"),
        ({"index": 0}, "without workers"),
        ({"workers": ["a:1", "b"], "index": 0}, "host:port. Received: 'b'"),
        ({"workers": ["a:1", "b:0"], "index": 0}, "Received: 'b:0'"),
        ({"workers": ["a:1", "a:1"], "index": 0}, "different addresses"),
        ({"workers": ["a:1", "b:2"]}, "index=None with 2 workers"),
        (
            {"workers": ["a:1", "b:2"], "index": 2},
            "from 0 to 1. Received: index=2",
        ),
    ],
)
def test_what_is_no_cluster_is_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        connect(**arguments)


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        json.dumps({"cluster": PAIR}),
        json.dumps({"cluster": PAIR, "task": {"type": "ps", "index": 0}}),
        json.dumps({"cluster": PAIR, "task": {"type": "worker", "index": 2}}),
        json.dumps(
            {
                "cluster": {**PAIR, "ps": ["c:3"]},
                "task": {"type": "worker", "index": 0},
            }
        ),
    ],
)
def test_a_wrong_tf_config_is_refused(config, monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="environment variable TF_CONFIG must"):
        connect()


@pytest.mark.parametrize(
    "config",
    ["", "{}", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}'],
)
def test_one_worker_is_no_cluster(config, monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert connect().num_replicas_in_sync == 1


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{s.getsockname()[1]}" for s in sockets]
    for one in sockets:
        one.close()
    return addresses


def start(recipe, output, *more: str, **environment: str) -> subprocess.Popen:
    small = ("--set", "batches.images_per_class=4")
    return subprocess.Popen(
        (*COMMAND, str(recipe), "--output", str(output), *small, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )


def output_of(process: subprocess.Popen, code: int = 0) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def losses(run) -> list[float]:
    with open(run / "metrics.csv") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_devices_and_workers_train_alike(tmp_path) -> None:
    """Two devices; two workers; and one of these that is killed.

    Checking a recipe makes its loss, before devices and workers are set.
    """
    recipe, workers = write_recipe(tmp_path), free_addresses(2)
    settings = (
        "method.loss={name: soft_triple, num_classes: auto}",
        "rate_multipliers={head: 2.0}",
    )
    owned = [x for each in settings for x in ("--set", each)]
    devices = start(recipe, tmp_path / "devices", *owned, "--devices", "2")
    assert "There is no GPU: 2 replicas share" in output_of(devices)

    long = (*owned, "--set", "epochs=1000")
    second = start(
        recipe, tmp_path / "other", *long,
        "--workers", ",".join(workers), "--index", "1",
    )  # fmt: skip
    first = start(
        recipe, tmp_path / "workers", *long,
        TF_CONFIG=json.dumps(
            {
                "cluster": {"worker": workers},
                "task": {"type": "worker", "index": 0},
            }
        ),
    )  # fmt: skip
    for line in second.stdout:
        if line.startswith("Epoch 2/"):
            break
    second.send_signal(signal.SIGKILL)
    second.communicate()
    assert "Worker 0 of 2 lost another worker" in output_of(first, code=1)
    assert not (tmp_path / "other").exists()
    # Later epochs have another phase where there are fewer in all.
    assert losses(tmp_path / "workers")[0] == pytest.approx(
        losses(tmp_path / "devices")[0], rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.skipif(not find_spec("jax"), reason="needs jax")
def test_devices_and_workers_of_jax_train_alike(tmp_path) -> None:
    recipe, workers = write_recipe(tmp_path), free_addresses(2)
    both = ",".join(workers)
    jax = ("--backend", "jax")
    flags = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2 "
        + os.environ.get("XLA_FLAGS", ""),
    }
    devices = start(
        recipe, tmp_path / "devices", *jax, "--devices", "2", **flags
    )
    running = [
        start(
            recipe, tmp_path / "workers", *jax, "--devices", "1",
            "--workers", both, "--index", str(index), **flags,
        )
        for index in range(2)
    ]  # fmt: skip
    said = [output_of(x) for x in (devices, *running)]
    assert "2 replicas" in said[0] and "2 replicas" in said[1]
    assert "The first worker measures and writes" in said[2]
    expected = losses(tmp_path / "devices")
    assert len(expected) == 2
    assert losses(tmp_path / "workers") == pytest.approx(expected, rel=1e-5)
    for folder in (tmp_path / "devices", tmp_path / "workers"):
        there = load_outcome(folder).after
        measured = runs.remeasure(folder)  # With TensorFlow.
        assert dict(measured.results) == pytest.approx(dict(there), rel=1e-5)
        assert {x.name for x in folder.iterdir()} >= {
            "best.keras", "last.keras", "metrics.csv", "summary.md",
        }  # fmt: skip


@pytest.mark.slow
def test_workers_with_another_recipe_are_told_what_differs(tmp_path) -> None:
    recipe, workers = write_recipe(tmp_path), free_addresses(2)
    both = [
        start(
            recipe, tmp_path / "workers", "--set", f"seed={index}",
            "--workers", ",".join(workers), "--index", str(index),
        )
        for index in range(2)
    ]  # fmt: skip
    first, second = (output_of(run, code=1) for run in both)
    said = "different recipe, settings and versions on worker 1"
    assert said in first and said in second
    assert "recipe.seed: 0 → 1" in second


@pytest.mark.slow
def test_a_missing_worker_is_named(tmp_path) -> None:
    recipe, workers = write_recipe(tmp_path), free_addresses(2)
    alone = start(
        recipe, tmp_path / "workers", "--wait", "2",
        "--workers", ",".join(workers), "--index", "1",
    )  # fmt: skip
    said = output_of(alone, code=1)
    assert "Not all of 2 workers did connect within 2 s" in said


@pytest.mark.slow
def test_a_port_is_taken(tmp_path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        alone = start(
            write_recipe(tmp_path), tmp_path / "workers",
            "--workers", f"localhost:{port},localhost:1", "--index", "0",
        )  # fmt: skip
        assert f"cannot start at localhost:{port}" in output_of(alone, code=1)


LATE = """
import tensorflow as tf
from keras_dml.distribution import connect
tf.zeros(())
connect(devices=1)
for arguments in {"devices": 2}, {"workers": ["a:1", "b:2"], "index": 0}:
    try:
        connect(**arguments)
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_devices_are_set_before_tensorflow_computes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True
    )
    assert done.stdout.count("connect must be called before") == 2
