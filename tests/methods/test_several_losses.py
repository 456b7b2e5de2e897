"""Several losses at once, in every method."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.recipes import validate
from tests.conftest import quick
from tests.methods.test_contract import build, training_batch

SEVERAL = {
    "triplet": {"mining": "hard", "weight": 0.5},
    "boundary": {"name": "margin", "learn_beta": True, "mining": "all"},
}
PAIRS = {"triplet": 0.5, "contrastive": 1.0}

# Of the weight of each loss, if it is not 1.
FACTORS = {"s2sd": 0.5}

# Methods with their own way to train several losses.
TRAINED = "abe bier dcml diva divide_and_conquer ensemble mic s2sd".split()

# Prefixes of the losses' names, by method.
PREFIXES = {
    "dcml": ("", "task_"),
    "diva": ("discriminative_", "shared_", "intra_"),
    "mic": ("metric_", "surrogate_"),
}


def several(name, **arguments):
    """A model, with the auxiliary loss of its method left at the default."""
    more = {"auxiliary_loss": None} if name in ("diva", "mic") else {}
    return build(name, loss=SEVERAL, loss_weights=None, **more, **arguments)


def values(model, learner=-1):
    x, targets = training_batch(model, learner)
    outputs = model.outputs_of(x, training=False)
    return model.objective(outputs, targets)


# Those whose objectives have code of their own for several terms; DiVA draws
# triplets, and MIC has no term called "metric_metric".
OWN_CODE = ("bier", "dcml", "divide_and_conquer", "hdc", "s2sd")


@pytest.mark.slow
@pytest.mark.parametrize("name", (*OWN_CODE, "abe", "ensemble"))
def test_each_term_equals_that_of_the_loss_alone(name) -> None:
    model = build(name, loss=PAIRS, loss_weights=None)
    alone = build(name, loss="triplet", loss_weights=None)
    copy_weights(model, alone)
    for learner in (-1, 1) if name == "divide_and_conquer" else (-1,):
        terms, expected = (values(x, learner) for x in (model, alone))
        for prefix in PREFIXES.get(name, ("",)):
            np.testing.assert_allclose(
                terms[f"{prefix}triplet"],
                expected[f"{prefix}metric"],
                rtol=1e-5,
                atol=1e-6,
            )


def copy_weights(source, target):
    for part in ("backbone", "head", "objective"):
        a, b = (getattr(x, part).get_weights() for x in (source, target))
        assert len(a) == len(b)
        getattr(target, part).set_weights(a)


@pytest.mark.parametrize("name", quick(["s2sd"], TRAINED))
def test_each_loss_is_a_trained_term_with_its_weight(name, tmp_path) -> None:
    """Each learner has its own β, without weight decay."""
    model = several(name)
    for prefix in PREFIXES.get(name, ("",)):
        factor = FACTORS.get(name, 1.0)
        factor = 0.2 if prefix in ("shared_", "intra_") else factor
        weights = model.weighting.term_weights
        assert weights[f"{prefix}triplet"] == 0.5 * factor
        assert weights[f"{prefix}boundary"] == factor
    assert not {"metric", "task_metric", "discriminative"} & set(weights)
    alternates = name == "divide_and_conquer"
    adam = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    model.compile(adam, run_eagerly=not alternates)
    betas = [v for v in model.trainable_variables if "/loss/beta" in v.path]
    assert betas
    assert len({v.path for v in betas}) == len(betas)
    assert not any(model.optimizer._use_weight_decay(v) for v in betas)
    before = [float(v[0]) for v in betas]
    for learner in (-1, 0, 1, 2) if alternates else (-1,):
        logs = model.train_on_batch(
            *training_batch(model, learner), return_dict=True
        )
    assert set(logs) == {"loss", *model.objective.terms}
    assert all(float(v[0]) != b for v, b in zip(betas, before, strict=True))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    kept = [x.get_config()["loss_weights"] for x in (again, model)]
    assert kept[0] == kept[1]
    for a, b in zip(again.variables, model.variables, strict=True):
        if "seed_generator" not in b.path:  # Keras does not save it.
            assert a.path == b.path
            np.testing.assert_array_equal(a, b)


def test_gradient_is_the_weighted_sum(tiny_backbone) -> None:
    def slopes(loss, weights=None):
        model = methods.baseline(
            tiny_backbone, loss=loss, loss_weights=weights, embedding_dim=4
        )
        model.head.set_weights(
            [np.linspace(-1, 1, 32).reshape(8, 4), np.zeros(4)]
        )
        x, targets = training_batch(model)
        with tf.GradientTape() as tape:
            terms = model.objective(model.outputs_of(x, training=True), targets)
            total = tf.reduce_mean(model.weighting(terms, tf.constant(0)))
        return tape.gradient(total, model.head.dense.kernel).numpy()

    both = slopes(PAIRS)
    first, second = slopes("triplet"), slopes("contrastive")
    np.testing.assert_allclose(both, 0.5 * first + second, rtol=1e-4, atol=1e-6)
    other = slopes(PAIRS, {"triplet": 2.0})
    np.testing.assert_allclose(other, 2 * first + second, rtol=1e-4, atol=1e-6)
    arithmetic = 0.5 * losses.TripletLoss() + losses.ContrastiveLoss()
    np.testing.assert_array_equal(slopes(arithmetic), both)


def test_learned_and_scheduled_weights_train_and_reload(
    tiny_backbone, tmp_path
) -> None:
    decay = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    loss = losses.WeightedSum(["triplet", "contrastive"], ["learned", decay])
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
    model.compile("sgd", run_eagerly=True)
    model.train_on_batch(*training_batch(model))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    weight = "weighting/loss_weights_triplet"
    assert weight in [v.path for v in again.trainable_variables]
    again.train_on_batch(*training_batch(model))
    logs = again.train_on_batch(*training_batch(model), return_dict=True)
    assert 0 < logs["contrastive"]
    for x in (model, again):
        assert x.weighting.term_weights["contrastive"].decay_rate == 0.5


def test_colliding_names_raise() -> None:
    loss = {"diversity": {"name": "triplet"}, "margin": 1.0}
    with pytest.raises(ValueError, match="different names.*'diversity'"):
        build("attentive_grouping", loss=loss)


def test_custom_objective_receives_the_sum(tiny_backbone) -> None:
    class Own(methods.EmbeddingObjective):
        def __init__(self, loss, **kwargs):
            super().__init__(loss, **kwargs)
            self.terms = ("metric",)

        def call(self, outputs, targets):
            value = self.loss.per_example(
                targets["label"], outputs["embedding"]
            )
            return {"metric": value}

    baseline = methods.baseline(tiny_backbone, embedding_dim=4, loss=PAIRS)
    custom_objective = Own(losses.get(PAIRS))
    outputs = baseline.outputs_of(training_batch(baseline)[0])
    _, targets = training_batch(baseline)
    terms = baseline.objective(outputs, targets)
    np.testing.assert_allclose(
        custom_objective(outputs, targets)["metric"],
        0.5 * terms["triplet"] + terms["contrastive"],
        rtol=1e-5,
    )
    assert custom_objective.term_weights == {}


def test_recipes_accept_several_losses() -> None:
    content = {
        "name": "several",
        "data": {"name": "glyphs"},
        "method": {
            "name": "abe",
            "loss": {
                "contrastive": 1.0,
                "proxy_anchor": {"num_classes": "auto", "weight": 0.5},
            },
        },
        "loss_weights": {"proxy_anchor": "learned"},
    }
    recipe = validate(content, "here")
    assert recipe.method.loss["proxy_anchor"]["num_classes"] == "auto"
    listed = {**content["method"], "loss": ["contrastive", {"name": "circle"}]}
    validate({**content, "method": listed, "loss_weights": {}}, "here")
    wrong = {**content["method"], "loss": {"contrastive": 1, "proxy_anchr": 2}}
    with pytest.raises(ValueError, match="Did you mean 'proxy_anchor'"):
        validate({**content, "method": wrong}, "here")
