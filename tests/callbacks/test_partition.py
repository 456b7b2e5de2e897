import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.callbacks.clustering import centroids_of, match_learners
from keras_dml.callbacks.recluster import (
    group_partition,
    label_partition,
    merge_unusable,
    random_partition,
)


def test_match_learners_undoes_a_cycle_of_three() -> None:
    old = np.repeat([0, 1, 2], [5, 6, 7])
    cycle = np.array([1, 2, 0])
    np.testing.assert_array_equal(match_learners(cycle[old], old, 3), old)


@given(st.permutations(range(5)), st.integers(0, 100))
def test_match_learners_undoes_any_renumbering(permutation, seed) -> None:
    old = np.random.default_rng(seed).integers(0, 5, 60)
    new = np.array(permutation)[old]
    np.testing.assert_array_equal(match_learners(new, old, 5), old)


@given(st.integers(0, 1000))
def test_match_learners_is_the_best_permutation(seed) -> None:
    rng = np.random.default_rng(seed)
    old, new = rng.integers(0, 4, (2, 40))
    best = max(
        np.sum(np.array(p)[new] == old)
        for p in itertools.permutations(range(4))
    )
    assert np.sum(match_learners(new, old, 4) == old) == best


def test_matching_keeps_clusters_together() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 4, (2, 40))
    matched = match_learners(new, old, 4)
    for cluster in range(4):
        assert len(np.unique(matched[new == cluster])) <= 1


def test_unusable_clusters_go_to_the_nearest_usable() -> None:
    centroids = np.array([[0.0], [1.0], [10.0], [11.5]])
    usable = np.array([True, False, True, False])
    assignments = np.array([0, 1, 2, 3, 3])
    merged = merge_unusable(assignments, centroids, usable)
    assert merged.tolist() == [0, 0, 2, 2, 2]


def test_clusters_merge_into_one_when_none_is_usable() -> None:
    merged = merge_unusable(
        np.array([0, 1, 1]), np.zeros((2, 3)), np.array([False, False])
    )
    assert merged.tolist() == [0, 0, 0]


def test_random_partition_is_balanced_and_seeded() -> None:
    a = random_partition(103, 4, seed=1)
    assert sorted(np.bincount(a)) == [25, 26, 26, 26]
    np.testing.assert_array_equal(a, random_partition(103, 4, seed=1))
    assert np.any(a != random_partition(103, 4, seed=2))


@pytest.mark.parametrize("num_learners", [1, 3, 4])
def test_label_partition_keeps_classes_whole(num_learners: int) -> None:
    labels = np.repeat([3, 7, 8, 20, 21, 30], [4, 2, 3, 5, 1, 3])
    partition = label_partition(labels, num_learners)
    assert sorted(np.unique(partition)) == list(range(num_learners))
    for label in np.unique(labels):
        assert len(np.unique(partition[labels == label])) == 1
    assert np.all(np.diff(partition) >= 0)


def test_group_partition_keeps_groups_whole_and_learners_alike() -> None:
    groups = np.random.default_rng(0).permutation(
        np.repeat([9, 4, -1, 6, 5], [8, 7, 5, 4, 2])
    )
    partition = group_partition(groups, 2)
    # 8; 7; to the 7 the 5; to the 8 the 4; then the 2 to the 12.
    learners = {9: 0, 4: 1, -1: 1, 6: 0, 5: 0}
    assert partition.tolist() == [learners[x] for x in groups.tolist()]
    each = group_partition(groups, 5)
    assert len(set(zip(groups.tolist(), each.tolist(), strict=True))) == 5
    with pytest.raises(ValueError, match="5 groups and 6 learners"):
        group_partition(groups, 6)


def test_centroids_are_means_of_their_points() -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    assignments = np.arange(20) % 3
    centroids = centroids_of(points, assignments, 4)
    for k in range(3):
        expected = points[assignments == k].mean(axis=0)
        np.testing.assert_allclose(centroids[k], expected)
    assert np.all(centroids[3] == 0)
