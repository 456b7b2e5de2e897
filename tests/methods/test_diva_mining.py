"""The triplets of DiVA's tasks: draws, frequencies and loss."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.losses.pairs import compare
from keras_dml.methods._diva_tasks import (
    IntraClass,
    PermutedLabels,
    SharedClasses,
    distinct_images,
)
from tests.losses.oracle import (
    batch,
    check_slopes,
    unit,
    value_and_gradient,
)

LABELS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]
X = unit(batch(LABELS, dim=6))


def drawn(miner, seed: int, labels=LABELS, x=X) -> list[tuple[int, int, int]]:
    """Triplets of one draw."""
    pairs = compare(np.array(labels), tf.constant(x, "float32"))
    positive, negative = (m.numpy() for m in miner.pair_weights(pairs, seed))
    assert set(np.unique([positive, negative])) <= {0.0, 1.0}
    np.testing.assert_array_equal(positive.sum(1), negative.sum(1))
    anchors = np.flatnonzero(positive.sum(1))
    return [
        (int(a), int(positive[a].argmax()), int(negative[a].argmax()))
        for a in anchors
    ]


@pytest.mark.parametrize("positive", ["distance", "uniform"])
def test_shared_triplets_have_three_classes(positive) -> None:
    for seed in range(12):
        triplets = drawn(SharedClasses(positive), seed)
        assert [a for a, _, _ in triplets] == list(range(10))
        for triplet in triplets:
            assert len({LABELS[i] for i in triplet}) == 3


def test_intra_triplets_are_three_images_of_one_class() -> None:
    for seed in range(12):
        triplets = drawn(IntraClass(), seed)
        # Classes of two images and of one have no triplet.
        assert [a for a, _, _ in triplets] == list(range(7))
        for triplet in triplets:
            assert len(set(triplet)) == 3
            assert len({LABELS[i] for i in triplet}) == 1


def test_repeated_images_form_no_intra_class_triplet() -> None:
    """Rows 0 and 3 are one image, and so are 5 and 6."""
    images = np.array([10, 11, 12, 10, 20, 21, 21, 30, 31, 40])
    mask = distinct_images(tf.constant(images))
    pairs = compare(np.array(LABELS), tf.constant(X, "float32"), mask=mask)
    seen = set()
    for seed in range(40):
        positive, negative = (
            m.numpy() for m in IntraClass().pair_weights(pairs, seed)
        )
        anchors = np.flatnonzero(positive.sum(1))
        # The second class has two images, in three rows.
        assert anchors.tolist() == [0, 1, 2, 3]
        for a in anchors:
            triplet = a, positive[a].argmax(), negative[a].argmax()
            assert len({images[i] for i in triplet}) == 3
            seen.add(triplet)
    assert len(seen) == 8  # Each anchor has two orders of two images.


def test_objective_tells_images_apart_by_index(tiny_backbone) -> None:
    model = methods.diva(
        tiny_backbone, embedding_dim=4, tasks=["intra"], loss="triplet"
    )
    x = np.random.default_rng(0).uniform(0, 255, (4, *model.input_shape[1:]))
    targets = {"label": np.zeros(4, int)}
    outputs = model.outputs_of(x.astype("float32"))
    distinct = model.objective(outputs, {**targets, "index": np.arange(4)})
    assert np.any(distinct["intra"])
    # Two images, and no triplet of three.
    twice = {**targets, "index": np.array([3, 5, 3, 5])}
    assert not np.any(model.objective(outputs, twice)["intra"])


def test_two_classes_form_no_shared_triplet() -> None:
    assert drawn(SharedClasses(), 0, [0, 0, 1, 1], X[:4]) == []
    assert drawn(IntraClass(), 0, [0, 0, 1, 1], X[:4]) == []


def weight(distance: float, dim: int = 6) -> float:
    """1/q, clamped at 0.5 and cut at 1.4."""
    if distance > 1.4:
        return 0.0
    d = max(distance, 0.5)
    return d ** (2 - dim) * (1 - d * d / 4) ** ((3 - dim) / 2)


def pair_probabilities(anchor: int, positive: str) -> np.ndarray:
    """Probability of (p, n) for an anchor, (B, B), by loops."""
    count = len(LABELS)
    weights = [weight(np.linalg.norm(X[anchor] - x)) for x in X]
    table = np.zeros((count, count))
    negatives = [i for i in range(count) if LABELS[i] != LABELS[anchor]]
    for p in negatives:
        third = [n for n in negatives if LABELS[n] != LABELS[p]]
        for n in third:
            first = (
                weights[p] / sum(weights[i] for i in negatives)
                if positive == "distance"
                else 1 / len(negatives)
            )
            near = sum(weights[i] for i in third)
            # Uniform where no negative is near.
            second = weights[n] / near if near else 1 / len(third)
            table[p, n] = first * second
    return table


@pytest.mark.parametrize("positive", ["distance", "uniform"])
def test_shared_triplets_are_drawn_by_distance(positive) -> None:
    draws, count = 1500, len(LABELS)
    pairs = compare(np.array(LABELS), tf.constant(X, "float32"))
    generator = keras.random.SeedGenerator(1)

    def draw(_: tf.Tensor) -> tf.Tensor:
        masks = SharedClasses(positive).draw(pairs, generator)
        return tf.stack([tf.argmax(mask, axis=1) for mask in masks])

    @tf.function(autograph=False)
    def drawn_by(count: int) -> tf.Tensor:
        spec = tf.TensorSpec((2, 10), tf.int64)
        return tf.map_fn(draw, tf.range(count), fn_output_signature=spec)

    counts = np.zeros((count, count, count))
    for p, n in drawn_by(draws).numpy():
        counts[np.arange(count), p, n] += 1
    expected, other = (
        draws * np.stack([pair_probabilities(a, how) for a in range(count)])
        for how in (positive, {"distance": "uniform"}.get(positive, "distance"))
    )
    assert np.all(counts[expected == 0] == 0)
    assert spread(counts, expected) < 5
    # The other way of drawing would not have passed.
    assert spread(counts, other) > 10


def spread(counts: np.ndarray, expected: np.ndarray) -> float:
    """The largest deviation of a count, in standard deviations."""
    often = expected > 5
    deviation = np.abs(counts - expected)[often]
    return float((deviation / np.sqrt(expected[often])).max())


def triplet_loop(triplets, x, margin: float = 0.3) -> float:
    """Mean of [d²(a, p) − d²(a, n) + m]₊ over given triplets."""
    x = unit(x)
    terms = [
        max(
            0.0,
            ((x[a] - x[p]) ** 2).sum() - ((x[a] - x[n]) ** 2).sum() + margin,
        )
        for a, p, n in triplets
    ]
    return float(np.mean(terms))


def margin_loop(triplets, x, by_triplets: bool = False) -> float:
    """[α + d(a, p) − β]₊ + [α + β − d(a, n)]₊, by what is active."""
    x = unit(x)
    total = pairs = active = 0.0
    for a, p, n in triplets:
        near = max(0.0, 0.2 + np.linalg.norm(x[a] - x[p]) - 1.2)
        far = max(0.0, 0.2 + 1.2 - np.linalg.norm(x[a] - x[n]))
        total += near + far
        pairs += int(near > 0) + int(far > 0)
        active += near > 0 or far > 0
    return total / (active if by_triplets else pairs)


@pytest.mark.parametrize("miner", [SharedClasses(), IntraClass()])
@pytest.mark.parametrize(
    ("loss", "loop"),
    [
        (losses.TripletLoss(margin=0.3), triplet_loop),
        (losses.MarginLoss(), margin_loop),
        (
            losses.MarginLoss(normalize_by="triplets"),
            partial(margin_loop, by_triplets=True),
        ),
    ],
    ids=["triplet", "margin", "margin by triplets"],
)
def test_loss_and_gradient_match_a_loop_over_the_triplets(
    miner, loss, loop
) -> None:
    config = {**loss.get_config(), "mining": miner}
    loss = type(loss).from_config(config)
    loss.seed_generator = 5  # A fixed seed draws the same every time.
    triplets = drawn(miner, 5)
    x = batch(LABELS, dim=6)
    values, gradient = value_and_gradient(
        loss, np.array(LABELS), x.astype("float32")
    )
    assert loop(triplets, x) > 0
    np.testing.assert_allclose(values.mean(), loop(triplets, x), rtol=1e-5)
    check_slopes(gradient, lambda z: loop(triplets, z), x, rtol=1e-4)


@pytest.mark.parametrize("mining", ["all", "semihard"])
def test_permuted_labels_equal_the_loss_on_shuffled_labels(
    mining,
) -> None:
    permuted = losses.TripletLoss(mining=PermutedLabels(mining))
    permuted.seed_generator = 7
    values, gradient = value_and_gradient(
        permuted, np.array(LABELS), X.astype("float32")
    )
    order = np.argsort(keras.random.uniform((10,), seed=7))
    shuffled = np.array(LABELS)[order]
    assert np.any(shuffled != LABELS)
    expected = value_and_gradient(
        losses.TripletLoss(mining=mining), shuffled, X.astype("float32")
    )
    np.testing.assert_allclose(values, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-5, atol=1e-7)


def test_every_batch_has_its_own_permutation() -> None:
    loss = losses.TripletLoss(mining=PermutedLabels("all"), seed=3)
    x = X.astype("float32")
    values = [float(tf.reduce_mean(loss(np.array(LABELS), x))) for _ in "abc"]
    assert len(set(values)) == 3


@pytest.mark.parametrize(
    "miner",
    [
        SharedClasses("uniform", cutoff=0.4, max_distance=2.0),
        IntraClass(),
        PermutedLabels("semihard"),
        PermutedLabels(losses.mining.DistanceWeighted(cutoff=0.4)),
    ],
)
def test_config_round_trips_inside_a_loss(miner) -> None:
    loss = losses.MarginLoss(mining=miner, seed=4)
    restored = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert restored.get_config() == loss.get_config()
    labels, x = np.array(LABELS), X.astype("float32")
    np.testing.assert_array_equal(restored(labels, x), loss(labels, x))


def test_unknown_positives_raise() -> None:
    with pytest.raises(ValueError, match="`positive` of SharedClasses.*'far'"):
        SharedClasses("far")
