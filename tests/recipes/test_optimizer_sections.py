"""Optimizers and learning rates of recipes."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import data
from keras_dml.optimizers import CoupledAdam, CoupledSGD
from keras_dml.recipes import load
from tests.conftest import blobs
from tests.recipes.builds import model_of

RECIPE = Path(__file__).parents[2] / "recipes" / "glyphs" / "baseline.yaml"
DECAY = "optimizer={name: adam, weight_decay: 0.1, decay: coupled}"


def batches(steps: int) -> data.Sampler:
    return data.ClassBalanced(
        blobs().labels,
        classes_per_batch=3,
        images_per_class=2,
        steps_per_epoch=steps,
    )


def rates(schedule: str, epochs: int, steps: int, rate: float = 0.4):
    """The learning rate of every step of a run."""
    recipe = load(
        RECIPE,
        (
            f"epochs={epochs}",
            f"optimizer.schedule={schedule}",
            f"optimizer.learning_rate={rate}",
        ),
    )
    variable = keras.Variable([0.0])
    optimizer = recipe.optimizer.build(steps, epochs)
    optimizer.build([variable])
    values = []
    for _ in range(epochs * steps):
        values.append(float(optimizer.learning_rate))
        optimizer.apply([keras.ops.ones((1,))])
    return values


def test_steps_change_the_rate_at_the_start_of_epochs() -> None:
    learning_rates = rates("{name: steps, epochs: [1, 3], factor: 0.5}", 4, 3)
    expected = [0.4] * 3 + [0.2] * 6 + [0.1] * 3
    np.testing.assert_allclose(learning_rates, expected, rtol=1e-6)


@pytest.mark.peers
def test_steps_match_pytorch() -> None:
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], 0.1)
    expected = []
    for _ in range(4):
        expected += 2 * [optimizer.param_groups[0]["lr"]]
        optimizer.step()
        scheduler.step()
    learning_rates = rates("{name: steps, epochs: [2, 3]}", 4, 2)
    np.testing.assert_allclose(learning_rates, expected, rtol=1e-6)


def test_cosine_ends_at_zero() -> None:
    learning_rates = rates("{name: cosine}", 2, 5)
    expected = [0.2 * (1 + math.cos(math.pi * t / 10)) for t in range(10)]
    np.testing.assert_allclose(learning_rates, expected, rtol=1e-5)


def test_warmup_is_linear_before_the_cosine() -> None:
    learning_rates = rates("{name: cosine, warmup: 1}", 3, 4)
    warmup = [0.4 * t / 4 for t in range(4)]
    cosine = [0.2 * (1 + math.cos(math.pi * t / 8)) for t in range(8)]
    np.testing.assert_allclose(
        learning_rates, warmup + cosine, rtol=1e-5, atol=1e-7
    )


def test_null_removes_a_schedule() -> None:
    schedule = "optimizer.schedule={name: cosine}"
    recipe = load(RECIPE, (schedule, "optimizer.schedule=null"))
    assert recipe.optimizer.schedule is None


def test_coupled_decay_selects_coupled_optimizers() -> None:
    coupled = load(RECIPE, (DECAY,)).optimizer.build(1, 1)
    assert type(coupled) is CoupledAdam
    assert coupled.weight_decay == 0.1
    setting = DECAY.replace("coupled", "decoupled")
    plain = load(RECIPE, (setting,)).optimizer.build(1, 1)
    assert type(plain) is keras.optimizers.Adam
    assert plain.weight_decay == 0.1
    by_path = "optimizer.decay_multipliers={/queries: 0.5}"
    coupled = load(RECIPE, (DECAY, by_path)).optimizer.build(1, 1)
    assert coupled.decay_multipliers == {"/queries": 0.5}
    sgd = "optimizer={name: SGD, weight_decay: 0.1, decay: coupled}"
    assert type(load(RECIPE, (sgd,)).optimizer.build(1, 1)) is CoupledSGD


def test_freeze_epochs_become_steps() -> None:
    recipe = load(RECIPE, ("backbone.freeze_epochs=2",))
    assert model_of(recipe, batches(3)).freeze_steps == 6
    assert model_of(load(RECIPE)).freeze_steps == 0
