"""Sub-tasks on composites: custom ones, and those of other methods."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.methods import (
    DivaObjective,
    EmbeddingObjective,
    MetaClasses,
    SeparateTasks,
    SharedTask,
    diva_tasks,
)
from keras_dml.methods._diva_tasks import TASKS
from keras_dml.model.objective import Objective
from keras_dml.utils.serialization import register
from tests.methods.test_contract import batch
from tests.methods.test_dcml import model_of

TRIPLET = {"name": "triplet", "mining": "all"}


def on(loss: str) -> EmbeddingObjective:
    return EmbeddingObjective(losses.get(loss))


def composites_of(model, x) -> np.ndarray:
    """Unit composites, (B, M, d)."""
    z, _ = model.objective.compositor(model.outputs_of(x)["sub_embeddings"])
    return z.numpy() / np.linalg.norm(z, axis=-1, keepdims=True)


def values_of(model, x, targets) -> dict[str, np.ndarray]:
    terms = model.objective(model.outputs_of(x), targets)
    return {name: value.numpy() for name, value in terms.items()}


def saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


# Tasks of one's own.


def test_every_composite_may_have_its_own_task(tiny_backbone, tmp_path) -> None:
    names = ["contrastive", "multi_similarity"]
    tasks = [on(name) for name in names]
    model = model_of(tiny_backbone, num_compositors=2, tasks=tasks)
    assert model.objective.terms[2:] == ("task_0_metric", "task_1_metric")
    x, targets = batch()
    values, z = values_of(model, x, targets), composites_of(model, x)
    for m, name in enumerate(names):
        expected = losses.get(name).per_example(targets["label"], z[:, m])
        np.testing.assert_allclose(
            values[f"task_{m}_metric"], expected, rtol=1e-3, atol=1e-5
        )
    again = values_of(saved_and_loaded(model, tmp_path), x, targets)
    for name, value in values.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-5)


def test_separate_tasks_must_fit_the_compositors(tiny_backbone) -> None:
    with pytest.raises(ValueError, match="3 objectives, 4 parts"):
        model_of(tiny_backbone, tasks=[on("contrastive") for _ in range(3)])
    with pytest.raises(ValueError, match="the same objective twice"):
        SeparateTasks([on("contrastive")] * 4)


def test_shared_task_is_the_sum_over_parts() -> None:
    loss = losses.get("contrastive")
    task = SharedTask(losses.get("contrastive"))
    parts = np.random.default_rng(0).normal(size=(6, 3, 4)).astype("f4")
    labels = np.array([0, 0, 1, 1, 2, 2])
    task.build({"parts": (None, 3, 4)})
    value = task({"parts": parts}, {"label": labels})["metric"]
    expected = sum(loss.per_example(labels, parts[:, m]) for m in range(3))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


# DREML's.


def test_meta_classes_replace_labels() -> None:
    task = MetaClasses(on("contrastive"), num_classes=6, num_meta_classes=2)
    task.build({"embedding": (None, 4)})
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
    labels = np.array([5, 4, 3, 2, 1, 0])
    value = task({"embedding": x}, {"label": labels})["metric"]
    meta = np.array([int(task.meta_class[label]) for label in labels])
    expected = losses.get("contrastive").per_example(meta, x)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_meta_classes_reject_unknown_classes() -> None:
    task = MetaClasses(on("contrastive"), num_classes=3, num_meta_classes=2)
    task.build({"embedding": (None, 4)})
    outputs = {"embedding": tf.ones((3, 4))}
    with pytest.raises(ValueError, match="num_classes=3 and a label 3"):
        task(outputs, {"label": np.array([0, 1, 3])})
    compiled = tf.function(
        lambda y: task(outputs, {"label": y})["metric"], autograph=False
    )
    value = compiled(tf.constant([0, 1, 3]))
    assert np.isnan(value).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((4, 1), "num_meta_classes=1"), ((2, 3), "`num_classes`.*num_classes=2")],
)
def test_unfit_arguments_of_meta_classes_raise(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        MetaClasses(on("contrastive"), *arguments)


def test_each_composite_has_its_own_meta_classes(
    tiny_backbone, tmp_path
) -> None:
    """Each composite has its own grouping, saved with the model."""
    tasks = [MetaClasses(on("contrastive"), 4, 2, seed=m) for m in range(2)]
    model = model_of(tiny_backbone, num_compositors=2, tasks=tasks)
    tasks[1].meta_class.assign([1, 1, 0, 0])
    model.compile("sgd", run_eagerly=True)
    model.train_on_batch(*batch())
    np.testing.assert_array_equal(tasks[1].meta_class, [1, 1, 0, 0])
    again = saved_and_loaded(model, tmp_path)
    x, targets = batch()
    values = values_of(model, x, targets)
    for name, value in values_of(again, x, targets).items():
        np.testing.assert_allclose(value, values[name], rtol=1e-5)


# Divide and conquer's.


@pytest.mark.parametrize("learner", [0, 3])
def test_batch_of_cluster_m_trains_composite_m(learner, tiny_backbone) -> None:
    model = model_of(tiny_backbone, tasks="clusters")
    x, targets = batch(learner)
    z = composites_of(model, x)[:, learner]
    loss = losses.ContrastiveLoss(reduction="sum_over_pairs")
    expected = loss.per_example(targets["label"], z)
    np.testing.assert_allclose(
        values_of(model, x, targets)["task_metric"], expected, rtol=1e-3
    )


def test_merged_phase_trains_all_composites_side_by_side(
    tiny_backbone,
) -> None:
    model = model_of(tiny_backbone, tasks="clusters")
    x, targets = batch(-1)
    merged = composites_of(model, x).reshape(12, -1) / 2
    loss = losses.ContrastiveLoss(reduction="sum_over_pairs")
    expected = loss.per_example(targets["label"], merged)
    np.testing.assert_allclose(
        values_of(model, x, targets)["task_metric"], expected, rtol=1e-3
    )


def test_cluster_step_moves_every_learner(tiny_backbone) -> None:
    """Composites spread the signal to all learners."""
    model = model_of(
        tiny_backbone, tasks="clusters", loss_weights={"metric": 0.0}
    )
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    before = model.head.dense.kernel.numpy().reshape(-1, 3, 4)
    model.train_on_batch(*batch(1))
    after = model.head.dense.kernel.numpy().reshape(-1, 3, 4)
    assert np.all(np.abs(after - before).max(axis=(0, 2)) > 0)


# Those of any method: its objective, on composites for parts.


@register
class KeyObjective(Objective):
    """Two tasks on two parts; keys of a momentum network; a queue."""

    terms = ("first", "second")

    def build(self, outputs_shape) -> None:
        _, self.parts, dim = outputs_shape["parts"]
        self.embedding_dim = outputs_shape["embedding"][-1]
        self.queue = self.add_weight(
            shape=(12, dim), initializer="zeros", trainable=False
        )
        self.label = self.add_weight(
            shape=(12,), initializer="zeros", dtype="int64", trainable=False
        )

    def call(self, outputs, targets):
        parts, keys = outputs["parts"], outputs["momentum_parts"]
        return {
            "first": tf.reduce_sum(parts[:, 0] * keys[:, 0], -1),
            "second": tf.reduce_sum(parts[:, 1] * self.queue, -1),
        }

    def after_step(self, outputs, targets) -> None:
        self.queue.assign(outputs["momentum_parts"][:, 1])
        self.label.assign(targets["label"])


def two_views():
    x, targets = batch()
    return {"image": x, "image2": x[:, ::-1]}, targets


def model_with_keys(backbone):
    return model_of(
        backbone, num_compositors=2, tasks=KeyObjective(), ema_momentum=0.9
    )


def test_any_objective_on_parts_is_a_sub_task(tiny_backbone) -> None:
    model = model_with_keys(tiny_backbone)
    assert model.objective.terms == (
        "metric", "reinforcement", "task_first", "task_second",
    )  # fmt: skip
    task = model.objective.tasks
    assert (task.parts, task.embedding_dim) == (2, 8)
    views, targets = two_views()
    z = composites_of(model, views["image"])
    # The momentum network starts as a copy of the model.
    keys = composites_of(model, views["image2"])
    task.queue.assign(keys[::-1, 1])
    values = values_of(model, views, targets)
    for name, part, key in (
        ("task_first", z[:, 0], keys[:, 0]),
        ("task_second", z[:, 1], keys[::-1, 1]),
    ):
        expected = (part * key).sum(-1)
        np.testing.assert_allclose(values[name], expected, atol=1e-4)


def test_keys_pass_no_gradient_to_the_compositors(tiny_backbone) -> None:
    """The gradient is the one with the keys held fixed."""
    model = model_with_keys(tiny_backbone)
    views, targets = two_views()
    fixed = composites_of(model, views["image2"])
    outputs = model.outputs_of(views)
    compositor = model.objective.compositor
    with tf.GradientTape(persistent=True) as tape:
        value = model.objective(outputs, targets)["task_first"]
        z, _ = compositor(outputs["sub_embeddings"])
        unit = tf.math.l2_normalize(z, -1)
        expected = tf.reduce_sum(unit[:, 0] * fixed[:, 0], -1)
    kernel = compositor.kernel.value
    np.testing.assert_allclose(
        tape.gradient(value, kernel), tape.gradient(expected, kernel), atol=1e-4
    )


def test_sub_tasks_act_after_the_step(tiny_backbone) -> None:
    model = model_with_keys(tiny_backbone)
    model.compile("sgd", run_eagerly=True)
    views, targets = two_views()
    task = model.objective.tasks
    model.train_on_batch(views, targets)
    np.testing.assert_array_equal(task.label, targets["label"])
    queue = task.queue.numpy()
    np.testing.assert_allclose(np.linalg.norm(queue, axis=1), 1, atol=1e-5)


class Recorded(Objective):
    """Records the arguments of `after_step`."""

    terms = ("none",)

    def call(self, outputs, targets):
        return {"none": outputs["embedding"][:, 0] * 0}

    def after_step(self, outputs, targets) -> None:
        self.given = outputs["embedding"], targets["label"]
        self.key = outputs["momentum_embedding"]


def test_tasks_of_single_composites_act_after_the_step() -> None:
    tasks = [Recorded(), Recorded()]
    relabeled = MetaClasses(tasks[1], num_classes=3, num_meta_classes=2)
    separate = SeparateTasks([tasks[0], relabeled])
    separate.build({"parts": (None, 2, 4), "embedding": (None, 8)})
    parts = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("f4")
    labels = np.array([2, 0, 1])
    separate.after_step(
        {"parts": parts, "momentum_parts": -parts}, {"label": labels}
    )
    meta = [int(relabeled.meta_class[label]) for label in labels]
    for m, expected in enumerate([labels, meta]):
        embedding, recorded_labels = tasks[m].given
        np.testing.assert_array_equal(embedding, parts[:, m])
        np.testing.assert_array_equal(tasks[m].key, -parts[:, m])
        np.testing.assert_array_equal(recorded_labels, expected)


# DiVA's four, a composite for each.


@pytest.fixture
def model(tiny_backbone):
    tasks = diva_tasks(loss=TRIPLET, queue_size=24, shared="negative_only")
    return model_of(
        tiny_backbone,
        loss=TRIPLET,
        tasks=DivaObjective(tasks, psi_units=8),
        ema_momentum=0.9,
        loss_weights={f"task_{name}": 0.3 for name in TASKS[1:]}
        | {"task_decorrelation_intra": 100.0},
    )


def test_each_task_sees_its_composite(model) -> None:
    views, targets = two_views()
    parts = composites_of(model, views["image"])
    keys = composites_of(model, views["image2"])
    model.objective.tasks.tasks[1].queue.enqueue(keys[:, 1])
    alone = model.objective.tasks(
        {"parts": parts, "momentum_parts": keys}, targets
    )
    values = values_of(model, views, targets)
    assert set(values) == {
        "metric", "reinforcement", *(f"task_{name}" for name in alone),
    }  # fmt: skip
    # Those of the others are drawn at random.
    for name in ("discriminative", "dance", "decorrelation_intra"):
        np.testing.assert_allclose(
            values[f"task_{name}"], alone[name], rtol=1e-3, atol=1e-4
        )


@pytest.mark.slow
def test_model_trains_and_queues_composites(model, tmp_path) -> None:
    model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
    views, targets = two_views()
    for _ in range(3):
        keys = model.momentum_encoder(views["image2"])
        logs = model.train_on_batch(views, targets, return_dict=True)
    assert all(np.isfinite(value) for value in logs.values())
    queue = model.objective.tasks.tasks[1].queue
    assert np.all(queue.filled)
    # The third batch took the place of the first.
    z, _ = model.objective.compositor(keys["momentum_sub_embeddings"])
    newest = tf.math.l2_normalize(z[:, 1], -1)
    np.testing.assert_allclose(queue.embeddings[:12], newest, atol=1e-4)
    again = saved_and_loaded(model, tmp_path)
    x = views["image"]
    np.testing.assert_array_equal(again(x), model(x))
    for a, b in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
