"""Training on JAX, in processes of its own, beside TensorFlow."""

import keras
import numpy as np
import pytest

import keras_dml  # noqa: F401  What files name.
from tests.conftest import needs_jax
from tests.forks import run_on
from tests.model.steps import CASES

pytestmark = needs_jax

DRAWING = {"baseline, margin", "baseline, some classes", "diva"}
"""Cases with random draws, which differ by backend."""


CROSSING = {"abe", "diva"}
"""Cases in which what was rounded differently crosses a margin or turns a ReLU
on within 20 steps, and grows from there."""


def run(program: str, *arguments: str, backend: str, devices: int = 1) -> None:
    run_on(backend, "-m", program, *arguments, devices=devices)


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    """Losses and weights after 20 steps of every method."""
    folder = tmp_path_factory.mktemp("steps")
    results = {}
    for name, backend, devices in (
        ("tensorflow", "tensorflow", 1),
        ("jax", "jax", 1),
        ("devices", "jax", 4),
    ):
        run("tests.model.steps", str(folder / name), str(folder / "begin"),
            backend=backend, devices=devices)  # fmt: skip
        results[name] = dict(np.load(folder / f"{name}.npz"))
    return results


def off(values: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    values, expected = values.astype(float), expected.astype(float)
    largest = max(np.abs(expected).max(), 1e-6)
    return float(np.abs(values - expected).max() / largest)


@pytest.mark.parametrize("case", sorted(set(CASES) - DRAWING))
def test_steps_match_tensorflow(case, steps) -> None:
    losses, expected = (
        steps[x][f"{case}, loss"] for x in ("jax", "tensorflow")
    )
    np.testing.assert_allclose(losses[0], expected[0], rtol=1e-5)
    rtol = 5e-2 if case in CROSSING else 1e-5
    np.testing.assert_allclose(losses, expected, rtol=rtol)


@pytest.mark.parametrize("case", CASES)
def test_devices_compute_what_one_device_does(case, steps) -> None:
    losses, expected = (steps[x][f"{case}, loss"] for x in ("devices", "jax"))
    np.testing.assert_allclose(losses[0], expected[0], rtol=5e-6)
    if case in CROSSING:
        np.testing.assert_allclose(losses, expected, rtol=5e-2)
        return
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, values in steps["jax"].items():
        if name.startswith(f"{case}, "):
            assert off(steps["devices"][name], values) < 1e-3, name


def test_weights_of_classes_are_divided_among_devices() -> None:
    """See `sharded`, which runs the example of the docs."""
    run("tests.model.sharded", backend="jax", devices=4)


def test_model_keeps_its_values_when_devices_cannot_divide_a_batch() -> None:
    """See `uneven`."""
    run("tests.model.uneven", backend="jax", devices=4)


@pytest.mark.parametrize("program", ["jax_fit", "without_tensorflow"])
def test_fit_trains_and_saves_on_jax(program, tmp_path) -> None:
    """Runs the programs and reads the models that they save."""
    run(f"tests.model.{program}", str(tmp_path), backend="jax")
    model = keras.models.load_model(tmp_path / "trained.keras")
    with np.load(tmp_path / "trained.npz") as expected:
        embeddings = model.predict(expected["x"], verbose=0)
        np.testing.assert_allclose(embeddings, expected["y"], atol=1e-5)


def test_killed_training_ends_with_the_same_bits(tmp_path) -> None:
    """See `kills`: a method with a queue, a momentum network and four heads."""
    run("tests.resuming.kills", str(tmp_path), "2", "diva",
        backend="jax")  # fmt: skip


START = """
import sys
import keras
import numpy as np
from keras_dml import methods
from tests.model.test_head_start import DIM, LABELS, TRAIN, identity
kernels = {}
for name in ("baseline", "divide_and_conquer"):
    model = methods.METHODS[name].value(
        identity(), embedding_dim=DIM, pooling="none", loss="contrastive"
    )
    built = model.head.get_weights()[0]
    model.compile(keras.optimizers.SGD(0.0))
    model.fit(TRAIN, LABELS, verbose=0)
    kernels[name] = model.head.get_weights()[0]
    assert not np.allclose(kernels[name], built)
    kernels[name] /= np.linalg.norm(kernels[name])
np.savez(sys.argv[1], **kernels)
"""


def test_head_starts_as_on_tensorflow(tmp_path) -> None:
    kernels = {}
    for backend in ("tensorflow", "jax"):
        run_on(backend, "-c", START, str(tmp_path / backend))
        kernels[backend] = np.load(tmp_path / f"{backend}.npz")
    for name, kernel in kernels["tensorflow"].items():
        # The sign of a principal component is that of rounding.
        x, y = np.abs(kernel), np.abs(kernels["jax"][name])
        np.testing.assert_allclose(x, y, atol=1e-4)


def test_guard_works_as_on_tensorflow() -> None:
    run("pytest", "-q", "tests/callbacks/test_guard.py", backend="jax")
