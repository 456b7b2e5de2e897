"""Every loss under JAX, jitted, against TensorFlow."""

import numpy as np
import pytest

from tests.conftest import needs_jax
from tests.forks import run_on
from tests.losses.oracle import LABELS, value_and_gradient
from tests.losses.test_contract import CLASSES, NAMES, without_draws
from tests.losses.test_modes import PRECISION, representable

pytestmark = needs_jax

MORE = ("contrastive", "histogram", "proxy_anchor", "smooth_ap")
"""Compilation takes long, so most losses are compiled once."""

VALUES = {"dynamic_soft_margin": 1e-5}
"""How far values may be apart where it is not 1e-6: this one's weights are
shares of a histogram, small against the distances."""

SCRIPT = """
import sys

import jax
import keras
import numpy as np

from keras_dml import losses
from keras_dml.losses.mining import DistanceWeighted
from keras_dml.losses.pairs import compare
from tests.losses.test_contract import NAMES, difficult, without_draws
from tests.losses.test_jax import MORE

assert keras.backend.backend() == "jax"
data = np.load(sys.argv[1])
labels, x = data["labels"].astype("int32"), data["x"]
results = {}
for name in NAMES:
    loss = without_draws(name)

    def mean(x, labels, loss=loss):
        values = loss.per_example(labels, x)
        return values.mean(), values

    step = jax.value_and_grad(mean, has_aux=True)
    jitted = jax.jit(step)
    calls = {"float32": (jitted, x)}
    if name in MORE:
        calls["eager"] = step, x
        calls["float16"] = jitted, x.astype("float16")
        calls["bfloat16"] = jitted, x.astype("bfloat16")
    for kind, (call, x_) in calls.items():
        (_, values), gradient = call(x_, labels)
        assert values.dtype == "float32" and gradient.dtype == x_.dtype
        results[f"{name}/{kind}/values"] = values
        results[f"{name}/{kind}/gradient"] = gradient.astype("float32")
    finite = True
    for some, z in difficult(len(labels)):
        outputs = jitted(z.astype("float32"), np.array(some, "int32"))
        finite &= all(np.isfinite(v).all() for v in jax.tree.leaves(outputs))
    results[f"{name}/finite"] = finite

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
    # At most as many as there are classes, for batches of all classes.
    labels = np.array(LABELS["unbalanced"])[-CLASSES:]
    x = representable(LABELS["unbalanced"])[-CLASSES:]
    np.savez(folder / "in.npz", labels=labels, x=x)
    files = str(folder / "in.npz"), str(folder / "out.npz")
    run_on("jax", "-c", SCRIPT, *files)
    with np.load(folder / "out.npz") as archive:
        return labels, x, dict(archive)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "float32") for name in NAMES]
    + [(name, kind) for name in MORE for kind in ("eager", *PRECISION)],
)
def test_loss_equals_tensorflow(jax_results, name, kind):
    labels, x, results = jax_results
    values, gradient = value_and_gradient(without_draws(name), labels, x)
    atol = VALUES.get(name, 1e-6)
    np.testing.assert_allclose(
        results[f"{name}/{kind}/values"], values, rtol=2e-5, atol=atol
    )
    scale = np.abs(gradient).max()
    precision = max(PRECISION.get(kind, 0), 2e-5)
    np.testing.assert_allclose(
        results[f"{name}/{kind}/gradient"], gradient, atol=precision * scale
    )


def test_difficult_batches_are_finite(jax_results):
    assert all(jax_results[2][f"{name}/finite"] for name in NAMES)


def test_draws_in_jax_do_not_depend_on_compilation(jax_results):
    results = jax_results[2]
    np.testing.assert_array_equal(
        results["draws/eager"], results["draws/jitted"]
    )
    assert results["draws/eager"].sum() > 0
    assert results["draws/moved"]
