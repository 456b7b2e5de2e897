"""Relations between examples with several labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from tests.methods.test_contract import batch

LABELS = np.random.default_rng(0).random((12, 5)) < 0.35
LABELS[3] = False  # No label at all.
LABELS[4] = LABELS[5]


def by_sets(rows, columns, rule):
    def positive(a, b):
        return bool(a & b) if rule == "any" else a == b and bool(a)

    row_sets, column_sets = (
        [set(np.flatnonzero(row)) for row in side] for side in (rows, columns)
    )
    return [[int(positive(a, b)) for b in column_sets] for a in row_sets]


@pytest.mark.parametrize("rule", ["any", "all"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
def test_relations_match_python_sets(rule, dtype) -> None:
    labels = LABELS.astype(dtype)
    actual = losses.relations(labels, rule=rule)
    assert actual.dtype == "int32"
    np.testing.assert_array_equal(actual, by_sets(LABELS, LABELS, rule))
    relation_to_four = losses.relations(labels, labels[:4], rule)
    np.testing.assert_array_equal(
        relation_to_four, by_sets(LABELS, LABELS[:4], rule)
    )
    assert np.sum(actual[3]) == 0


@pytest.mark.slow
def test_boolean_labels_train_and_keep_their_rule(
    tiny_backbone, tmp_path
) -> None:
    rule = "all"  # By default it is "any", as in plain `compile`.
    model = methods.attentive_grouping(
        tiny_backbone,
        embedding_dim=4,
        num_groups=2,
        loss={"name": "contrastive", "mining": "all"},
        relation_rule=rule,
    )
    model.compile("sgd")
    x, _ = batch()
    outputs = model.outputs_of(x)
    terms = model.objective(outputs, {"label": LABELS})
    expected = model.objective(
        outputs, {"label": np.array(by_sets(LABELS, LABELS, rule))}
    )
    np.testing.assert_array_equal(terms["metric"], expected["metric"])
    data = tf.data.Dataset.from_tensor_slices((x, {"label": LABELS})).batch(6)
    assert np.isfinite(model.fit(data, verbose=0).history["loss"][0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.objective.relation_rule == rule


def test_boolean_labels_equal_their_relation_matrix() -> None:
    loss = losses.ContrastiveLoss()
    x = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
    relation = np.array(by_sets(LABELS, LABELS, "any"))
    assert float(loss(LABELS, x)) == float(loss(relation, x))


@pytest.mark.parametrize(
    ("inner", "rule", "jit"),
    [
        ("contrastive", "all", False),
        pytest.param("multi_sup_con", "any", True, marks=pytest.mark.slow),
    ],
)
def test_memory_of_label_sets_matches_the_loss_on_all_rows(
    inner, rule, jit
) -> None:
    """The reference is the loss on all rows seen so far."""
    x = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
    loss = losses.CrossBatchMemory(inner, 20, num_labels=5, relation_rule=rule)
    loss.build(keras.layers.Layer(), 4)
    loss.remember(LABELS[:6], x[:6])
    terms = tf.function(loss.term_values, jit_compile=jit, autograph=False)(
        tf.constant(LABELS[6:]), tf.constant(x[6:])
    )
    alone, sets = losses.get(inner), LABELS
    if rule == "all":  # Equal sets are equal ids; without labels each alone.
        ids = [
            frozenset(np.flatnonzero(row)) or i for i, row in enumerate(sets)
        ]
        sets = np.array([ids.index(i) for i in ids])
    other_mask = ~np.eye(12, dtype=bool)[6:]
    np.testing.assert_allclose(
        terms["memory"],
        alone.per_example(sets[6:], x[6:], sets, x, mask=other_mask),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        terms["batch"], alone.per_example(sets[6:], x[6:]), rtol=1e-5
    )


@pytest.mark.slow
def test_memory_of_label_sets_trains_and_reloads(
    tiny_backbone, tmp_path
) -> None:
    loss = losses.CrossBatchMemory("contrastive", 20, num_labels=5)
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
    model.compile("sgd")
    x, _ = batch()
    data = tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(6)
    assert np.isfinite(model.fit(data, verbose=0).history["memory"][0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    queue = again.objective.loss.queue
    assert int(queue.count) == 12
    np.testing.assert_array_equal(queue.labels[:12], LABELS)
    memory, relation = queue(LABELS)
    assert memory.shape == (20, 4)
    expected = by_sets(LABELS, LABELS, "any")
    np.testing.assert_array_equal(relation[:, :12], expected)
    np.testing.assert_array_equal(relation[:, 12:], -1)


def test_unfit_arguments_for_label_sets_raise(tiny_backbone) -> None:
    x, targets = batch()
    loss = losses.CrossBatchMemory("contrastive", 20, num_labels=5)
    model = methods.baseline(
        tiny_backbone, embedding_dim=4, loss=loss, relation_rule="all"
    )
    outputs = model.outputs_of(x)
    for labels in (LABELS, targets["label"]):
        with pytest.raises(ValueError, match="num_labels=5.*CrossBatchMemory"):
            model.objective(outputs, {"label": labels})
    with pytest.raises(ValueError, match=r"`relation_rule`.*'some'"):
        losses.CrossBatchMemory("contrastive", 20, relation_rule="some")
    with pytest.raises(ValueError, match="`num_labels` of CrossBatchMemory"):
        losses.CrossBatchMemory("contrastive", 20, num_labels=0)


def test_losses_that_need_classes_raise(tiny_backbone) -> None:
    x, _ = batch()
    for loss in (
        {"name": "proxy_anchor", "num_classes": 5},
        losses.CrossBatchMemory("contrastive", 10),
    ):
        model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
        with pytest.raises(
            ValueError, match="not a relation matrix|relation matrix does not"
        ):
            model.objective(model.outputs_of(x), {"label": LABELS})
