"""DiVA: head, objective and options against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.methods import DivaObjective
from keras_dml.methods._diva import term_weights
from keras_dml.methods._diva_tasks import (
    TASKS,
    IntraClass,
    PermutedLabels,
    SharedClasses,
    diva_tasks,
)
from tests.losses.oracle import unit
from tests.methods.test_contract import batch

PAIRS = ["decorrelation_dance", "decorrelation_shared", "decorrelation_intra"]


def model_of(backbone, **kwargs):
    arguments = {
        "embedding_dim": 16, "loss": "contrastive", "queue_size": 30,
        "psi_units": 8, "auxiliary_loss": "triplet",
    }  # fmt: skip
    return methods.diva(backbone, **{**arguments, **kwargs})


def views():
    x, targets = batch()
    return {"image": x, "image2": x[:, :, ::-1]}, targets


def test_total_loss_is_eq_7(tiny_backbone) -> None:
    model = model_of(tiny_backbone, alpha=0.4, rho=7.0)
    x, targets = views()
    outputs = model.outputs_of(x, training=True)
    terms = model.objective(outputs, targets)
    assert tuple(terms) == (*TASKS, *PAIRS)
    values = {name: value.numpy() for name, value in terms.items()}
    expected = (
        values["discriminative"]
        + 0.4 * sum(values[name] for name in TASKS[1:])
        + 7.0 * sum(values[name] for name in PAIRS)
    )
    assert all(np.all(values[name] < 0) for name in PAIRS)  # −c
    # Terms of either sign nearly cancel out.
    np.testing.assert_allclose(
        model.weighting(terms, tf.constant(0)), expected, rtol=1e-5, atol=2.5e-7
    )


def test_each_task_trains_its_own_embedding(tiny_backbone) -> None:
    model = model_of(tiny_backbone)
    x, targets = views()
    model.objective.after_step(model.outputs_of(x), targets)  # Fills it.
    with tf.GradientTape(persistent=True) as tape:
        terms = model.objective(model.outputs_of(x), targets)
        sums = {name: tf.reduce_sum(terms[name]) for name in TASKS}
    kernels = [head.kernel.value for head in model.head.heads]
    for i, name in enumerate(TASKS):
        gradients = tape.gradient(
            sums[name], kernels, unconnected_gradients="zero"
        )
        moved = [bool(np.any(gradient)) for gradient in gradients]
        assert moved == [k == i for k in range(4)], name


def test_discriminative_and_dance_match_their_losses(tiny_backbone) -> None:
    model = model_of(
        tiny_backbone, weighting="paper", limit=2.0, temperature=0.5
    )
    x, targets = views()
    keys = unit(np.random.default_rng(0).normal(size=(20, 4)))
    model.objective.tasks[1].queue.enqueue(keys)
    outputs = model.outputs_of(x)
    terms = model.objective(outputs, targets)
    parts = outputs["parts"].numpy()
    np.testing.assert_allclose(
        terms["discriminative"],
        losses.ContrastiveLoss().per_example(targets["label"], parts[:, 0]),
        rtol=1e-5,
    )
    # Eq. 6: no positive in the denominator, 20 of 30 places filled.
    queries = parts[:, 1].astype("float64")
    positives = outputs["momentum_parts"].numpy()[:, 1]
    distance = np.linalg.norm(queries[:, None] - keys, axis=2)
    density = distance**2 * np.sqrt(1 - distance**2 / 4)
    logits = np.minimum(2.0, 1 / density) * (queries @ keys.T) / 0.5
    positive_terms = (queries * positives).sum(1) / 0.5
    expected = -np.log(np.exp(positive_terms) / np.exp(logits).sum(1))
    np.testing.assert_allclose(terms["dance"], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_keys_enter_the_queue_after_the_step(mode, tiny_backbone) -> None:
    model = model_of(tiny_backbone, tasks=TASKS[:2])
    is_eager = mode == "eager"
    sgd = keras.optimizers.SGD(0.1)
    model.compile(sgd, run_eagerly=is_eager, jit_compile=not is_eager)
    queue = model.objective.tasks[1].queue
    x, targets = views()
    expected = []
    for step in range(3):
        keys = model.momentum_encoder(x["image2"])["momentum_parts"][:, 1]
        expected = [*expected, *keys.numpy()][-30:]
        logs = model.train_on_batch(x, targets, return_dict=True)
        assert (logs["dance"] == 0) == (step == 0)  # Nothing to compare with.
        assert int(queue.count) == len(expected)
    held = np.roll(queue.embeddings, -int(queue.pointer), axis=0)
    np.testing.assert_allclose(held, expected, atol=1e-5)


# Ablations, variants and refusals.


@pytest.mark.parametrize(
    ("tasks", "dim"),
    [
        (["discriminative", "dance"], 256),
        (TASKS, 128),
        (["intra"], 512),
    ],
)
def test_any_tasks_divide_the_dimensions(tasks, dim, tiny_backbone) -> None:
    """As in Table 1, two tasks have 256 dimensions each, four 128."""
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


def test_all_tasks_may_be_discriminative(tiny_backbone) -> None:
    """Figure 4: the same architecture, all tasks discriminative."""
    loss = {"name": "margin", "learn_beta": True}
    tasks = ["discriminative"] * 3
    model = model_of(tiny_backbone, tasks=tasks, loss=loss, embedding_dim=15)
    names = ["discriminative", "discriminative_2", "discriminative_3"]
    assert list(model.objective.terms) == [
        *names, *(f"decorrelation_{name}" for name in names[1:]),
    ]  # fmt: skip
    betas = [v for v in model.trainable_variables if "beta" in v.path]
    assert len(betas) == 3 + 2  # The shift of two batch norms.
    terms = model.objective(model.outputs_of(batch()[0]), batch()[1])
    assert tuple(terms) == model.objective.terms


def test_zero_rho_removes_psi(tiny_backbone) -> None:
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


def test_single_view_raises_with_a_way_out(tiny_backbone) -> None:
    model = model_of(tiny_backbone)
    model.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=r"pipeline\(..., num_views=2\)"):
        model.train_on_batch(*batch())


def test_paper_weighting_requires_a_limit(tiny_backbone) -> None:
    model, (x, targets) = model_of(tiny_backbone, weighting="paper"), views()
    with pytest.raises(ValueError, match="`limit` of nce"):
        model.objective(model.outputs_of(x), targets)


def test_term_weights_match_the_documented_example() -> None:
    """That of `term_weights`: −2.5."""
    objective = DivaObjective(diva_tasks())
    weights = term_weights(objective, alpha=0.3, rho=1500.0)
    terms = {"discriminative": 0.8, "dance": 2, "shared": 1, "intra": 1}
    for name in ("dance", "shared", "intra"):
        terms[f"decorrelation_{name}"] = -0.001
    assert set(weights) == set(terms) == set(objective.terms)
    total = sum(weights[name] * terms[name] for name in terms)
    assert total == pytest.approx(-2.5)
