import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.methods import SharedTask
from keras_dml.recipes.files import validate
from tests.layers.test_compositor import branches
from tests.losses.oracle import check_slopes, contrastive, unit
from tests.methods.test_contract import batch

LABELS = np.repeat(np.arange(4), 3)


def model_of(backbone, **kwargs):
    arguments = {
        "embedding_dim": 12,
        "num_learners": 3,
        "num_compositors": 4,
        "loss": {"name": "contrastive", "reduction": "sum_over_pairs"},
    }
    return methods.dcml(backbone, **{**arguments, **kwargs})


def weights_by_hand(compositor, y, bias) -> np.ndarray:
    """c of Eq. 4 and 5, (B, M, K)."""
    kernel, _ = branches(compositor)
    logits = np.einsum("bj,fmkj->bfmk", y.reshape(len(y), -1), kernel) + bias
    t = np.exp(logits[:, 0])
    t /= t.sum(-1, keepdims=True)
    return t * np.where(logits[:, 1] > 0, 1, -1)


def terms_by_hand(y, c) -> dict[str, float]:
    """J_dis, Σ J_reinf and Σ J_T of Eq. 8, averaged over the batch."""
    z = np.einsum("bmk,bkd->bmd", c, y)
    return {
        "metric": contrastive(unit(y.reshape(len(y), -1)), LABELS),
        "reinforcement": -np.log(np.abs(c).max(-1)).sum(-1).mean(),
        "task_metric": sum(
            contrastive(unit(z[:, m]), LABELS) for m in range(4)
        ),
    }


def objective_and_sub_embeddings(backbone, **kwargs):
    """An objective whose signs are far from flipping, and (B, K, d)."""
    objective = model_of(backbone, **kwargs).objective
    y = np.random.default_rng(4).normal(size=(12, 3, 4)).astype("f4")
    return objective, y


def call(objective, y, targets=None):
    outputs = {
        "embedding": tf.math.l2_normalize(tf.reshape(y, (12, 12)), -1),
        "parts": tf.math.l2_normalize(y, -1),
        "sub_embeddings": y,
    }
    return objective(outputs, {"label": LABELS, **(targets or {})})


# Equations.


def test_terms_match_equation_8(tiny_backbone) -> None:
    objective, y = objective_and_sub_embeddings(tiny_backbone)
    bias = branches(objective.compositor)[1]
    c = weights_by_hand(objective.compositor, y, bias)
    terms = call(objective, y)
    assert tuple(terms) == objective.terms
    for name, value in terms_by_hand(y, c).items():
        np.testing.assert_allclose(
            np.mean(terms[name]), value, rtol=1e-4, err_msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metric", "reinforcement", "task_metric"])
def test_gradient_of_the_learners_matches_equation_8(
    name, tiny_backbone
) -> None:
    """The gradient passes y_k, and never the weights."""
    objective, y = objective_and_sub_embeddings(tiny_backbone)
    bias = branches(objective.compositor)[1]
    c = weights_by_hand(objective.compositor, y, bias)
    with tf.GradientTape() as tape:
        inputs = tf.constant(y)
        tape.watch(inputs)
        loss = tf.reduce_mean(call(objective, inputs)[name])
    gradient = tape.gradient(
        loss, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO
    ).numpy()
    by_hand = lambda y: terms_by_hand(y, c)[name]  # noqa: E731
    check_slopes(gradient, by_hand, y.astype("f8"), rtol=1e-3)
    assert np.any(gradient) == (name != "reinforcement")


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("name", ["reinforcement", "task_metric"])
def test_gradient_of_the_compositors_matches_equation_8(
    name, trained, tiny_backbone
) -> None:
    """Checks the bias of the scores; a small step changes no sign."""
    objective, y = objective_and_sub_embeddings(
        tiny_backbone, train_compositors_on_tasks=trained
    )
    compositor = objective.compositor
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(call(objective, y)[name])
    gradient = tape.gradient(
        loss,
        compositor.bias.value,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    scores = np.reshape(gradient, (2, 4, 3))[0]
    bias = branches(compositor)[1]

    def of_scores(score_bias):
        c = weights_by_hand(compositor, y, np.stack([score_bias, bias[1]]))
        return terms_by_hand(y, c)[name]

    learns = trained or name == "reinforcement"
    assert np.any(scores) == learns
    if learns:
        check_slopes(scores, of_scores, bias[0], rtol=1e-3)


# Options.


def test_term_weights_have_published_defaults(tiny_backbone) -> None:
    model = model_of(tiny_backbone, loss_weights={"task_metric": 0.25})
    assert model.weighting.term_weights == {
        "metric": 1.0,
        "reinforcement": 0.05,
        "task_metric": 0.25,
    }
    model = model_of(tiny_backbone, loss_weights={"reinforcement": 0.0})
    assert model.weighting.term_weights["reinforcement"] == 0


def test_tasks_train_sub_embeddings_without_compositors(
    tiny_backbone,
) -> None:
    objective, y = objective_and_sub_embeddings(
        tiny_backbone, num_compositors=0
    )
    assert objective.terms == ("metric", "task_metric")
    assert objective.trainable_variables == []
    expected = sum(contrastive(unit(y[:, k]), LABELS) for k in range(3))
    np.testing.assert_allclose(
        np.mean(call(objective, y)["task_metric"]), expected, rtol=1e-4
    )


def test_options_reach_the_compositor(tiny_backbone) -> None:
    options = {"signs": False, "softmax": True, "input_norm": True}
    model = model_of(
        tiny_backbone, compositor_initializer="he_normal", **options
    )
    config = model.objective.compositor.get_config()
    assert {name: config[name] for name in options} == options
    assert config["initializer"]["class_name"] == "HeNormal"
    softmax = model_of(tiny_backbone, softmax=False).objective.compositor
    assert not softmax.softmax


# Gradients and costs of compositors.


def reached(model, term: str) -> set[str]:
    """Paths of the variables that a term's gradient reaches."""
    x, targets = batch()
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        loss = tf.reduce_sum(terms[term])
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    return {
        v.path
        for v, g in zip(variables, gradients, strict=True)
        if g is not None and np.any(g)
    }


def test_gradients_reach_the_parameters_of_equation_8(
    tiny_backbone,
) -> None:
    """min over θ and ψ, over θ, and over ψ alone, in Eq. 8."""
    model = model_of(tiny_backbone)
    psi = {v.path for v in model.objective.compositor.trainable_variables}
    everything = {v.path for v in model.trainable_variables}
    assert reached(model, "task_metric") == everything
    assert reached(model, "metric") == everything - psi
    assert reached(model, "reinforcement") == psi


def test_more_compositors_need_no_more_operations(tiny_backbone) -> None:
    """One kernel and one product serve any number of compositors."""
    sizes = set()
    for num_compositors in (2, 16):
        layer = model_of(
            tiny_backbone, num_compositors=num_compositors
        ).objective.compositor
        graph = tf.function(layer.__call__, autograph=False)
        traced = graph.get_concrete_function(tf.TensorSpec((None, 3, 4)))
        sizes.add(len(traced.graph.get_operations()))
    assert len(sizes) == 1


# Weights that losses own, and refusals.


def test_every_composite_has_its_own_loss(tiny_backbone) -> None:
    loss = {"name": "margin", "learn_beta": True}
    model = model_of(tiny_backbone, loss=loss)
    owned = [v.path for v in model.objective.weights if "beta" in v.path]
    assert owned == [
        "objective/metric/loss/beta",
        *(f"objective/tasks/part_{m}/loss/beta" for m in range(4)),
    ]


def test_given_tasks_are_used(tiny_backbone) -> None:
    from keras_dml import losses

    tasks = SharedTask(losses.get("triplet"))
    assert model_of(tiny_backbone, tasks=tasks).objective.tasks is tasks


def test_division_without_cluster_tasks_raises() -> None:
    content = {
        "name": "x",
        "data": {"name": "glyphs"},
        "method": {"name": "dcml", "every": 3},
    }
    with pytest.raises(Exception, match="every.*tasks='metric'"):
        validate(content, "here")
