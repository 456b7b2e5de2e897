"""CrossBatchMemory against a loop over a `collections.deque`."""

from collections import deque

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.losses import CrossBatchMemory
from tests.methods.test_contract import batch, build, training_batch

SUMMED = {"name": "contrastive", "reduction": "sum_over_pairs"}


def contents(queue):
    """Embeddings and labels, oldest first."""
    order = np.arange(queue.size)
    if int(queue.count) == queue.size:
        order = np.roll(order, -int(queue.pointer))
    held = order[: int(queue.count)]
    return queue.embeddings.numpy()[held], queue.labels.numpy()[held]


def pairs_by_loop(x, labels, seen):
    """Contrastive loss with squared distances, its sum divided by B.

    And its gradient by `x`. `seen` holds (embedding, label, row of the batch
    or None).
    """
    total, gradient = 0.0, np.zeros_like(x)
    for i, (anchor, label) in enumerate(zip(x, labels, strict=True)):
        for other, other_label, row in seen:
            if row == i:
                continue
            difference = anchor - other
            distance = np.sum(np.square(difference))
            if label == other_label:
                total += distance
                gradient[i] += 2 * difference
            elif distance < 1:
                total += 1 - distance
                gradient[i] -= 2 * difference
    return total / len(x), gradient / len(x)


@pytest.mark.parametrize(
    ("jit", "size"),
    [
        (False, 10),
        (False, 4),
        pytest.param(True, 4, marks=pytest.mark.slow),
    ],
)
def test_memory_wraps_around_in_five_steps(jit, size) -> None:
    """Sizes are no multiple of the batch, and below the batch."""
    inner = losses.get({**SUMMED, "normalize": False})
    loss = CrossBatchMemory(inner, size, batch=False)
    loss.build(keras.layers.Layer(), 3)

    @tf.function(jit_compile=jit, autograph=False)
    def step(x, labels):
        with tf.GradientTape() as tape:
            tape.watch(x)
            (value,) = loss.term_values(labels, x).values()
            value = tf.reduce_mean(value)
        loss.remember(labels, x)
        return value, tape.gradient(value, x)

    seen: deque = deque(maxlen=size)
    generator = np.random.default_rng(0)
    for _ in range(5):
        x = generator.normal(0, 0.4, (6, 3)).astype("float32")
        labels = generator.integers(2**40, 2**40 + 3, 6)
        seen.extend(zip(x, labels, range(6), strict=True))
        value, gradient = step(tf.constant(x), tf.constant(labels))
        expected, slope = pairs_by_loop(x, labels, seen)
        assert float(value) == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-5)
        held, ids = contents(loss.queue)
        np.testing.assert_array_equal(held, [row[0] for row in seen])
        np.testing.assert_array_equal(ids, [row[1] for row in seen])
        seen = deque(((a, b, None) for a, b, _ in seen), maxlen=size)


def test_terms_belong_to_batch_and_memory() -> None:
    x, labels = np.eye(4, 3, dtype="float32"), np.array([0, 0, 1, 1])
    loss = CrossBatchMemory(SUMMED, 8, memory_weight=0.5)
    loss.build(keras.layers.Layer(), 3)
    loss.remember(labels, x)
    terms = loss.term_values(labels, x)
    alone = losses.get(SUMMED)
    np.testing.assert_array_equal(terms["batch"], alone.per_example(labels, x))
    assert loss.term_weights == {"batch": 1.0, "memory": 0.5}
    np.testing.assert_allclose(
        loss.per_example(labels, x), terms["batch"] + 0.5 * terms["memory"]
    )


@pytest.mark.parametrize("also_batch", [True, False])
def test_memory_stays_empty_during_warm_up(also_batch) -> None:
    """Two updates by the batch alone; then the memory fills from empty."""
    loss = CrossBatchMemory(SUMMED, 100, batch=also_batch, warm_up=2)
    loss.build(keras.layers.Layer(), 3)
    generator = np.random.default_rng(0)
    labels = np.array([0, 0, 1, 1])
    for step in range(4):
        x = generator.normal(size=(4, 3)).astype("float32")
        terms = loss.term_values(labels, x)
        assert (np.sum(terms["batch"]) > 0) == (also_batch or step < 2)
        assert (np.sum(terms["memory"]) > 0) == (step >= 2)
        loss.remember(labels, x)
        assert int(loss.queue.count) == 4 * max(0, step - 1)


@pytest.mark.slow
def test_memory_fills_only_in_training_steps(tiny_backbone) -> None:
    loss = CrossBatchMemory(SUMMED, 1000)
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
    model.compile("sgd")
    x, targets = batch()
    data = tf.data.Dataset.from_tensor_slices((x, targets)).batch(4)
    logs = model.fit(data, epochs=2, verbose=0).history
    assert set(logs) == {"loss", "batch", "memory"}
    assert int(loss.queue.count) == 24
    before = contents(loss.queue)
    model.predict(x, verbose=0)
    model.objective(model.outputs_of(x), targets)
    for a, b in zip(contents(loss.queue), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not {v.path for v in model.trainable_variables} & {
        v.path for v in loss.queue.variables
    }


@pytest.mark.slow
def test_memory_is_saved_with_losses_that_own_weights(
    tiny_backbone, tmp_path
) -> None:
    margin = {"learn_beta": True, "num_classes": 4, "mining": "all"}
    inner = {"triplet": 1.0, "margin": margin}
    loss = {"name": "cross_batch_memory", "loss": inner, "size": 30}
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
    model.compile(keras.optimizers.SGD(0.5))
    for _ in range(2):
        model.train_on_batch(*batch())
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(again.variables, model.variables, strict=True):
        assert a.path == b.path
        np.testing.assert_array_equal(a, b)
    assert int(again.objective.loss.queue.count) == 24
    betas = [v for v in again.trainable_variables if "/loss/beta" in v.path]
    assert betas and np.all(betas[0].numpy() != 1.2)
    values = [x.train_on_batch(*batch()) for x in (model, again)]
    np.testing.assert_array_equal(*values)
    expected = [f"{x}_{y}" for x in ("batch", "memory") for y in inner]
    assert list(model.objective.terms) == expected


@pytest.mark.parametrize("name", ["attentive_grouping", "diva"])
def test_every_learner_has_its_own_memory(name) -> None:
    loss = {"pairs": SUMMED, "xbm": CrossBatchMemory(SUMMED, 20, batch=False)}
    more = {"auxiliary_loss": "contrastive"} if name == "diva" else {}
    model = build(name, loss=loss, loss_weights=None, **more)
    x, targets = training_batch(model)
    outputs = model.outputs_of(x, training=True)
    terms = model.objective(outputs, targets)
    memory_terms = [term for term in terms if term.endswith("xbm")]
    assert memory_terms
    assert all(np.sum(terms[term]) > 0 for term in memory_terms)
    model.objective.after_step(outputs, targets)
    counts = [v for v in model.variables if v.path.endswith("queue/count")]
    if name == "diva":
        counts = [v for v in counts if "dance" not in v.path]
    assert len({v.path for v in counts}) == len(counts) >= len(memory_terms)
    assert [int(v) for v in counts] == [12] * len(counts)


@pytest.mark.slow
def test_learner_remembers_only_its_own_batches() -> None:
    loss = {"name": "cross_batch_memory", "loss": SUMMED, "size": 50}
    model = build("divide_and_conquer", loss=loss, update="active")
    model.compile("sgd", jit_compile=False)
    for learner in (0, 0, 2, -1):
        model.train_on_batch(*training_batch(model, learner))
    queues = [x.queue for x in model.objective.part_losses]
    assert [int(x.count) for x in queues] == [24, 0, 12]
    assert int(model.objective.loss.queue.count) == 12
    x, targets = training_batch(model, 0)
    part = model.outputs_of(x)["parts"][:, 2]
    model.objective.after_step(model.outputs_of(x), {**targets, "learner": [2]})
    np.testing.assert_array_equal(contents(queues[2])[0][12:], part)


def test_memory_holds_embeddings_of_the_momentum_network(tiny_backbone) -> None:
    model = methods.baseline(
        tiny_backbone,
        embedding_dim=4,
        loss=CrossBatchMemory(SUMMED, 12),
        ema_momentum=0.9,
    )
    model.compile("sgd", run_eagerly=True)
    x, targets = training_batch(model)
    keys = model.outputs_of(x)["momentum_embedding"].numpy()
    model.train_on_batch(x, targets)
    held, _ = contents(model.objective.loss.queue)
    np.testing.assert_allclose(held, keys, atol=1e-6)


def test_unfit_losses_and_labels_raise(tiny_backbone) -> None:
    for inner in ({"name": "proxy_anchor", "num_classes": 3}, keras.ops.mean):
        with pytest.raises(ValueError, match="the batch with references"):
            CrossBatchMemory(inner, 10)
    with pytest.raises(ValueError, match="the batch with references"):
        CrossBatchMemory(CrossBatchMemory(SUMMED, 10), 10)
    with pytest.raises(ValueError, match="`size`.*size=0"):
        CrossBatchMemory(SUMMED, 0)
    loss = CrossBatchMemory(SUMMED, 10)
    x, labels = np.eye(3, dtype="float32"), np.arange(3)
    with pytest.raises(RuntimeError, match="loss=CrossBatchMemory"):
        loss(labels, x)
    loss.build(keras.layers.Layer(), 3)
    with pytest.raises(ValueError, match="must be class ids, which it stores"):
        loss.per_example(np.eye(3, dtype="int32"), x)
    with pytest.raises(ValueError, match="cannot be combined with"):
        loss.per_example(labels, x, labels, x)
    with pytest.raises(RuntimeError, match="already belong to a layer"):
        loss.build(keras.layers.Layer(), 3)
