"""DiVA: head, objective and options against NumPy."""

from itertools import combinations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.export import export_model
from keras_dml.methods._diva.tasks import TASKS
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


def test_embedding_is_weighted_unit_embeddings_side_by_side(
    tiny_backbone,
) -> None:
    weights = [0.5, 1.0, 2.0, 0.0]
    model = model_of(tiny_backbone, test_weights=weights)
    x, _ = batch()
    features = tiny_backbone.predict(x, verbose=0).mean((1, 2))
    parts = [
        unit(features @ head.kernel.numpy() + head.bias.numpy())
        for head in model.head.heads
    ]
    outputs = model.outputs_of(x)
    np.testing.assert_allclose(
        outputs["parts"], np.stack(parts, axis=1), atol=1e-5
    )
    side_by_side = np.concatenate(
        [w * part for w, part in zip(weights, parts, strict=True)], axis=1
    )
    np.testing.assert_allclose(
        outputs["embedding"], unit(side_by_side), atol=1e-5
    )


def test_the_whole_is_eq_7(tiny_backbone) -> None:
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
    for i, name in enumerate(TASKS):
        with tf.GradientTape() as tape:
            terms = model.objective(model.outputs_of(x), targets)
            loss = tf.reduce_sum(terms[name])
        kernels = [head.kernel.value for head in model.head.heads]
        gradients = tape.gradient(loss, kernels, unconnected_gradients="zero")
        moved = [bool(np.any(gradient)) for gradient in gradients]
        assert moved == [k == i for k in range(4)], name


def test_discriminative_and_dance_are_their_losses(tiny_backbone) -> None:
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
    own = (queries * positives).sum(1) / 0.5
    expected = -np.log(np.exp(own) / np.exp(logits).sum(1))
    np.testing.assert_allclose(terms["dance"], expected, rtol=1e-3, atol=1e-5)


def test_decorrelation_is_with_the_discriminative_embedding(
    tiny_backbone,
) -> None:
    tasks = ["intra", "discriminative"]
    model = model_of(tiny_backbone, tasks=tasks, reduction="sum")
    x, targets = batch()
    outputs = model.outputs_of(x)
    term = model.objective(outputs, targets)["decorrelation_intra"]
    intra, discriminative = np.moveaxis(outputs["parts"].numpy(), 1, 0)
    kernel, bias, kernel2, bias2 = (
        v.numpy() for v in model.objective.decorrelations[0].psi.weights
    )
    hidden = np.maximum(intra @ kernel + bias, 0)
    mapped = unit(hidden @ kernel2 + bias2)
    expected = -((discriminative * mapped) ** 2).sum(1)
    np.testing.assert_allclose(term, expected, rtol=1e-4, atol=1e-6)
    weights = model.weighting.given
    assert (weights["discriminative"], weights["intra"]) == (1.0, 0.3)


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_keys_of_second_views_enter_the_queue_after_the_step(
    mode, tiny_backbone
) -> None:
    model = model_of(tiny_backbone)
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


@pytest.mark.slow
def test_beta_is_learned_per_class_in_every_task(tiny_backbone) -> None:
    """As in the released code."""
    loss = {"name": "margin", "learn_beta": True, "num_classes": 4}
    model = model_of(tiny_backbone, loss=loss, auxiliary_loss=None)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    betas = {
        task.name: task.loss.beta_weight
        for task in model.objective.tasks
        if task.name != "dance"
    }
    for _ in range(2):
        model.train_on_batch(*views())
    assert len({id(beta) for beta in betas.values()}) == 3
    for name, beta in betas.items():
        assert beta.shape == (4,)
        assert np.any(beta.numpy() != np.float32(1.2)), name


@pytest.mark.slow
def test_nce_and_dance_weigh_negatives_differently(tiny_backbone) -> None:
    keys = unit(np.random.default_rng(0).normal(size=(30, 4)))
    values = {}
    for weighting in (None, "queue_axis", "batch_axis"):
        keras.utils.set_random_seed(0)
        model = model_of(tiny_backbone, weighting=weighting)
        model.objective.tasks[1].queue.enqueue(keys)
        x, targets = views()
        terms = model.objective(model.outputs_of(x), targets)
        values[weighting] = terms["dance"].numpy()
    for one, other in combinations(values.values(), 2):
        assert np.all(np.abs(one - other) > 1e-4)


@pytest.mark.slow
def test_psi_has_a_rate_of_its_own_and_no_decay(tiny_backbone) -> None:
    model = model_of(tiny_backbone, rate_multipliers={"/loss/psi/": 0.0})
    optimizer = keras.optimizers.AdamW(1e-2, weight_decay=0.1)
    model.compile(optimizer, run_eagerly=True)
    psi = [v for v in model.trainable_variables if "psi" in v.path]
    before = [v.numpy() for v in psi]
    model.train_on_batch(*views())
    assert not any(optimizer._use_weight_decay(v) for v in psi)
    for v, old in zip(psi, before, strict=True):
        np.testing.assert_array_equal(v, old)


@pytest.mark.slow
def test_files_keep_the_queue_and_the_paths_of_weights(
    tiny_backbone, tmp_path
) -> None:
    loss = {"name": "margin", "learn_beta": True}
    model = model_of(tiny_backbone, loss=loss)
    model.compile("adam", run_eagerly=True)
    for _ in range(2):
        model.train_on_batch(*views())
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    paths = [[v.path for v in x.trainable_variables] for x in (again, model)]
    assert paths[0] == paths[1]
    assert int(again.objective.tasks[1].queue.count) == 24


@pytest.mark.slow
def test_exports_hold_nothing_of_training(tiny_backbone, tmp_path) -> None:
    model = model_of(tiny_backbone)
    folder = export_model(model, tmp_path / "1")
    stored = tf.train.list_variables(str(folder / "variables/variables"))
    held = [np.prod(s) for name, s in stored if "_CHECKPOINTABLE" not in name]
    wanted = [*model.backbone.variables, *model.head.variables]
    assert sorted(held) == sorted(np.prod(v.shape) for v in wanted)
