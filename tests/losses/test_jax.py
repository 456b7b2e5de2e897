"""Every loss under JAX, jitted, against TensorFlow."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.losses.oracle import LABELS, batch, value_and_gradient
from tests.losses.test_contract import NAMES, default_without_draws

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None, reason="needs JAX"
    ),
]

SCRIPT = """
import sys

import jax
import keras
import numpy as np

from keras_dml import losses
from keras_dml.losses.mining import DistanceWeighted
from keras_dml.losses.pairs import compare
from tests.losses.test_contract import NAMES, default_without_draws

assert keras.backend.backend() == "jax"
data = np.load(sys.argv[1])
labels, x = data["labels"].astype("int32"), data["x"]
results = {}
for name in NAMES:
    loss = default_without_draws(name)

    def mean(x, loss=loss):
        values = loss.per_example(labels, x)
        return values.mean(), values

    (_, values), gradient = jax.jit(jax.value_and_grad(mean, has_aux=True))(x)
    results[f"{name}/values"] = values
    results[f"{name}/gradient"] = gradient

generator = losses.MarginLoss(seed=3).seed_generator
eager = DistanceWeighted().pair_weights(compare(labels, x), generator)
fresh = losses.MarginLoss(seed=3).seed_generator


def draw(state, x):
    with keras.StatelessScope(state_mapping=[(fresh.state, state)]) as scope:
        weights = DistanceWeighted().pair_weights(compare(labels, x), fresh)
    return weights, scope.get_current_value(fresh.state)


jitted, state = jax.jit(draw)(fresh.state.value, x)
results["draws/eager"], results["draws/jitted"] = eager[1], jitted[1]
results["draws/moved"] = np.any(np.array(state) != fresh.state.value)
np.savez(sys.argv[2], **results)
"""


@pytest.fixture(scope="module")
def jax_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    labels = np.array(LABELS["unbalanced"])
    x = batch(LABELS["unbalanced"]).astype("float32")
    np.savez(folder / "in.npz", labels=labels, x=x)
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    subprocess.run(
        [*command, str(folder / "in.npz"), str(folder / "out.npz")],
        check=True,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        cwd=pathlib.Path(__file__).parents[2],
    )
    with np.load(folder / "out.npz") as archive:
        return labels, x, dict(archive)


@pytest.mark.parametrize("name", NAMES)
def test_jitted_loss_equals_tensorflow(jax_results, name):
    labels, x, results = jax_results
    values, gradient = value_and_gradient(
        default_without_draws(name), labels, x
    )
    np.testing.assert_allclose(
        results[f"{name}/values"], values, rtol=2e-5, atol=1e-6
    )
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(
        results[f"{name}/gradient"], gradient, atol=2e-5 * scale
    )


def test_draws_in_jax_do_not_depend_on_compilation(jax_results):
    results = jax_results[2]
    np.testing.assert_array_equal(
        results["draws/eager"], results["draws/jitted"]
    )
    assert results["draws/eager"].sum() > 0
    assert results["draws/moved"]
