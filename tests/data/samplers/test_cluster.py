"""Tests of ClusterSampler."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.data import ClassBalanced, ClusterSampler, usable_clusters

LABELS = np.tile(np.arange(12), 10)
CLUSTERS = np.random.default_rng(0).integers(0, 4, 120)


def make(**arguments: Any) -> ClusterSampler:
    sampler = ClusterSampler(LABELS, 4, 2, **{"num_learners": 4, **arguments})
    sampler.set_assignments(CLUSTERS)
    return sampler


def usable_by_hand(assignments, labels, num_learners) -> list[bool]:
    usable = []
    for cluster in range(num_learners):
        inside = labels[assignments == cluster].tolist()
        usable.append(sum(inside.count(x) >= 2 for x in set(inside)) >= 2)
    return usable


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=3, max_size=12),
    classes=st.integers(1, 6),
    images=st.integers(2, 4),
    num_learners=st.integers(1, 5),
    fill=st.sampled_from(["none", "outside"]),
    schedule=st.sampled_from(["alternate", "round_robin", "proportional"]),
    seed=st.integers(0, 999),
)
def test_batches_live_in_one_cluster(
    sizes, classes, images, num_learners, fill, schedule, seed
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    assignments = rng.integers(0, num_learners, len(labels))
    classes = min(classes, sum(size >= 2 for size in sizes))
    usable = usable_by_hand(assignments, labels, num_learners)
    result = usable_clusters(assignments, labels, num_learners)
    assert result.tolist() == usable
    if classes == 0 or not any(usable):
        return
    sampler = ClusterSampler(
        labels, classes, images, num_learners, schedule, fill, seed=seed
    )
    sampler.set_assignments(assignments)
    plan, targets = sampler.plan(1), sampler.targets(1)
    assert plan.shape == (sampler.steps, classes * images)
    np.testing.assert_array_equal(targets["cluster"], targets["learner"])
    for rows, cluster in zip(plan, targets["cluster"], strict=True):
        assert usable[cluster]
        check_cluster_batch(
            rows, labels, assignments == cluster, classes, images, fill
        )


def check_cluster_batch(rows, labels, inside, classes, images, fill) -> None:
    sizes = np.bincount(labels)
    here = np.bincount(labels[inside], minlength=len(sizes))
    pairs = (here >= 2) | ((fill == "outside") & (here == 1) & (sizes >= 2))
    alone = (here == 1) & ~pairs
    drawn = np.bincount(labels[rows], minlength=len(sizes))
    # First classes with pairs, up to P, each with K images at least.
    present = pairs & (drawn > 0)
    assert present.sum() == min(classes, pairs.sum())
    assert drawn[present].min() >= images
    # Then images that are alone, once each; then more of the classes.
    room = len(rows) - images * present.sum()
    assert drawn[alone].sum() == min(room, alone.sum())
    assert drawn[alone].max(initial=0) <= 1
    assert np.ptp(drawn[present]) <= 1
    assert not drawn[~pairs & ~alone].any()
    for label in np.flatnonzero(present):
        of_class = rows[labels[rows] == label]
        if here[label] >= 2:
            assert inside[of_class].all()
            limit = here[label]
        else:
            assert inside[of_class].any()
            limit = sizes[label]
        assert len(set(of_class.tolist())) == min(drawn[label], limit)


def test_round_robin_goes_on_in_order() -> None:
    sampler = make(schedule="round_robin", steps_per_epoch=6)
    learners = [*sampler.targets(0)["learner"], *sampler.targets(1)["learner"]]
    assert learners == [0, 1, 2, 3] * 3


def test_alternate_and_proportional_shares() -> None:
    clusters = np.repeat([0, 1, 2, 3], [72, 24, 12, 12])
    for schedule, expected in (
        ("alternate", [0.25, 0.25, 0.25, 0.25]),
        ("proportional", [0.6, 0.2, 0.1, 0.1]),
    ):
        labels = np.tile([0, 1], 60)
        sampler = ClusterSampler(
            labels, 2, 2, schedule=schedule, steps_per_epoch=4000
        )
        sampler.set_assignments(clusters)
        drawn = np.bincount(sampler.targets(0)["cluster"]) / 4000
        np.testing.assert_allclose(drawn, expected, atol=0.03)


@pytest.mark.parametrize("schedule", ["alternate", "round_robin"])
def test_unusable_clusters_are_never_drawn(schedule: str) -> None:
    sampler = ClusterSampler(
        [0, 0, 1, 1, 2, 2], 2, 2, 3, schedule, steps_per_epoch=50
    )
    sampler.set_assignments([1, 1, 1, 1, 2, 2])
    assert set(sampler.targets(0)["cluster"]) == {1}
    assert set(sampler.plan(0).ravel()) == {0, 1, 2, 3}


def test_phase_decides_learners_and_clusters() -> None:
    sampler = make()
    everything = ClassBalanced(LABELS, 4, 2)
    scheduled = sampler.targets(5)["learner"]
    assert sampler.phase == ("sliced", "clusters")
    assert np.all(scheduled >= 0)

    sampler.set_phase("full", "clusters")
    targets = sampler.targets(5)
    np.testing.assert_array_equal(targets["cluster"], scheduled)
    assert np.all(targets["learner"] == -1)
    inside = CLUSTERS[sampler.plan(5)]
    assert np.all(inside == scheduled[:, None])

    sampler.set_phase("sliced", "all")
    targets = sampler.targets(5)
    np.testing.assert_array_equal(targets["learner"], scheduled)
    assert np.all(targets["cluster"] == -1)
    np.testing.assert_array_equal(sampler.plan(5), everything.plan(5))

    sampler.set_phase("full", "all")
    assert all(np.all(x == -1) for x in sampler.targets(5).values())
    np.testing.assert_array_equal(sampler.plan(5), everything.plan(5))


def test_plan_depends_on_epoch_and_assignments() -> None:
    first, second = make(), make()
    np.testing.assert_array_equal(first.plan(2), second.plan(2))
    assert not np.array_equal(first.plan(2), first.plan(3))
    second.set_assignments(CLUSTERS[::-1])
    assert not np.array_equal(first.plan(2), second.plan(2))
    second.set_assignments(CLUSTERS)
    np.testing.assert_array_equal(first.plan(2), second.plan(2))


def test_plan_without_assignments_raises() -> None:
    sampler = ClusterSampler(LABELS, 4, 2)
    for ask in (sampler.plan, sampler.targets):
        with pytest.raises(ValueError, match=r"Recluster\(images, sampler\)"):
            ask(0)
    sampler.set_phase("sliced", "all")
    assert set(sampler.targets(0)["learner"]) <= {0, 1, 2, 3}
    assert sampler.plan(0).shape == (sampler.steps, 8)
