"""Pair masks from class ids and from relation matrices."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import pair_masks
from keras_dml.losses.pairs import IGNORE, NEGATIVE, POSITIVE


def expected_masks(labels, ref_labels, exclude_self):
    positive = [
        [
            y == r and not (exclude_self and i == j)
            for j, r in enumerate(ref_labels)
        ]
        for i, y in enumerate(labels)
    ]
    negative = [[y != r for r in ref_labels] for y in labels]
    return positive, negative


def test_masks_of_class_ids_match_a_loop():
    labels = [3, 1, 3, 2, 1, 3]
    positive, negative = pair_masks(np.array(labels))
    expected = expected_masks(labels, labels, exclude_self=True)
    np.testing.assert_array_equal(positive, expected[0])
    np.testing.assert_array_equal(negative, expected[1])


def test_references_have_no_self_pairs():
    labels, ref_labels = [3, 1], [1, 3, 3, 7]
    positive, negative = pair_masks(
        np.array(labels), np.array(ref_labels), exclude_self=False
    )
    expected = expected_masks(labels, ref_labels, exclude_self=False)
    np.testing.assert_array_equal(positive, expected[0])
    np.testing.assert_array_equal(negative, expected[1])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
def test_relation_matrix_gives_masks(dtype):
    relation = np.array(
        [[POSITIVE, NEGATIVE, IGNORE], [IGNORE, POSITIVE, NEGATIVE]], dtype
    )
    positive, negative = pair_masks(relation, exclude_self=False)
    np.testing.assert_array_equal(positive, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(negative, [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    "ids",
    [
        np.array([2**24, 2**24 + 1, 2**24], "int32"),
        np.array([2**53, 2**53 + 1, 2**53], "int64"),
    ],
)
def test_large_ids_stay_apart(ids):
    assert len(set(ids.astype("float32").tolist())) == 1
    positive, _ = pair_masks(tf.constant(ids))
    np.testing.assert_array_equal(positive, [[0, 0, 1], [0, 0, 0], [1, 0, 0]])
