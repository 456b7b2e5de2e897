"""DiVA's ablations and variants, and what it refuses."""

import pytest

from keras_dml.methods import DivaObjective
from keras_dml.methods._diva.method import term_weights
from keras_dml.methods._diva.mining import (
    IntraClass,
    PermutedLabels,
    SharedClasses,
)
from keras_dml.methods._diva.tasks import TASKS, diva_tasks
from tests.methods.test_contract import batch
from tests.methods.test_diva import model_of, views


@pytest.mark.parametrize(
    ("tasks", "dim"),
    [
        (["discriminative", "dance"], 256),
        (TASKS, 128),
        (["intra"], 512),
    ],
)
def test_any_tasks_share_the_dimensions(tasks, dim, tiny_backbone) -> None:
    """As in Table 1: two tasks have 256 each, four 128."""
    model = model_of(tiny_backbone, tasks=tasks, embedding_dim=512)
    shape = model.compute_output_shape((None, 16, 16, 1))
    assert shape == (None, dim * len(tasks))
    assert (model.momentum_encoder is None) == ("dance" not in tasks)
    x, targets = views()
    if "dance" not in tasks:
        x = x["image"]
    terms = model.objective(model.outputs_of(x, training=True), targets)
    assert set(terms) == {*tasks} | {
        f"decorrelation_{name}"
        for name in tasks
        if len(tasks) > 1 and name != "discriminative"
    }


def test_purely_discriminative_ensemble(tiny_backbone) -> None:
    """Figure 4: the same architecture, all tasks discriminative."""
    loss = {"name": "margin", "learn_beta": True}
    tasks = ["discriminative"] * 3
    model = model_of(tiny_backbone, tasks=tasks, loss=loss)
    names = ["discriminative", "discriminative_2", "discriminative_3"]
    assert list(model.objective.terms) == [
        *names, *(f"decorrelation_{name}" for name in names[1:]),
    ]  # fmt: skip
    betas = [v for v in model.trainable_variables if "beta" in v.path]
    assert len(betas) == 3 + 2  # The shift of two batch norms.
    terms = model.objective(model.outputs_of(batch()[0]), batch()[1])
    assert tuple(terms) == model.objective.terms


def test_without_decorrelation_there_is_no_psi(tiny_backbone) -> None:
    model = model_of(tiny_backbone, rho=0)
    assert model.objective.terms == TASKS
    assert not [v for v in model.variables if "psi" in v.path]


@pytest.mark.parametrize(
    ("shared", "miner"),
    [
        ("strict", SharedClasses("distance", 0.4, 1.9)),
        ("negative_only", SharedClasses("uniform", 0.4, 1.9)),
    ],
)
def test_shared_triplets_follow_the_base_losss_distances(
    shared, miner, tiny_backbone
) -> None:
    mining = {"name": "distance_weighted", "cutoff": 0.4, "max_distance": 1.9}
    loss = {"name": "margin", "mining": mining}
    model = model_of(tiny_backbone, shared=shared, auxiliary_loss=loss)
    _, _, shared_task, intra = model.objective.tasks
    assert shared_task.loss.miner == miner
    assert intra.loss.miner == IntraClass()


def test_permuted_shared_task_keeps_the_base_losss_mining(
    tiny_backbone,
) -> None:
    model = model_of(tiny_backbone, shared="permuted")
    miner = model.objective.tasks[2].loss.miner
    assert miner == PermutedLabels("semihard")


def test_one_view_is_refused_with_the_way_out(tiny_backbone) -> None:
    model = model_of(tiny_backbone)
    model.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=r"pipeline\(..., num_views=2\)"):
        model.train_on_batch(*batch())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": ["dicriminative"]}, "`tasks` of diva.*'dicriminative'"),
        ({"tasks": []}, "`tasks` of diva"),
        ({"shared": "loose"}, "`shared` of diva.*'loose'"),
        ({"embedding_dim": 3}, "`embedding_dim` of diva.*at least 4"),
        ({"auxiliary_loss": "fast_ap"}, 'must accept `mining`.*"shared"'),
        ({"test_weights": [1, 1]}, "`test_weights` of diva"),
        ({"test_weights": [0, 0, 0, 0]}, "`test_weights` of diva"),
        ({"test_weights": [1, 1, 1, -1]}, "`test_weights` of diva"),
        ({"weighting": "paper"}, "`limit` of nce"),
    ],
)
def test_refuses(arguments, message, tiny_backbone) -> None:
    with pytest.raises(ValueError, match=message):
        model = model_of(tiny_backbone, **arguments)
        model.objective(model.outputs_of(views()[0]), views()[1])


def test_weights_of_the_terms_by_an_example() -> None:
    """That of `term_weights`: −2.5."""
    objective = DivaObjective(diva_tasks())
    weights = term_weights(objective, alpha=0.3, rho=1500.0)
    terms = {"discriminative": 0.8, "dance": 2, "shared": 1, "intra": 1}
    for name in ("dance", "shared", "intra"):
        terms[f"decorrelation_{name}"] = -0.001
    assert set(weights) == set(terms) == set(objective.terms)
    total = sum(weights[name] * terms[name] for name in terms)
    assert total == pytest.approx(-2.5)
