"""Several devices of one machine, chosen by a count."""

import os
import subprocess
import sys

import pytest

from keras_dml.distribution import use_devices
from tests.runs.small_run import write_recipe

TRAIN = (
    "import sys; sys.argv[0] = 'keras-dml'; "
    "from keras_dml.cli import main; main()"
)
LATE = """
import tensorflow as tf
from keras_dml.distribution import use_devices
tf.zeros(())
use_devices(1)
try:
    use_devices(2)
except ValueError as error:
    print(error)
"""


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_device_count_must_be_positive(count) -> None:
    with pytest.raises(ValueError, match="`count` of use_devices must be"):
        use_devices(count)


@pytest.mark.slow
def test_use_devices_raises_once_tensorflow_has_computed() -> None:
    assert "use_devices must be called before" in run(LATE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.peers)]
)
def test_command_trains_on_two_devices(backend, tmp_path) -> None:
    pytest.importorskip(backend)
    output = run(
        TRAIN, "train", str(write_recipe(tmp_path)), "--backend", backend,
        "--output", str(tmp_path / "run"), "--devices", "2",
        "--set", "method.loss={name: soft_triple, num_classes: auto}",
        "--set", "batches.images_per_class=4",
        KERAS_BACKEND=backend, JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )  # fmt: skip
    assert "2 replicas" in output
    assert (tmp_path / "run" / "summary.md").exists()
