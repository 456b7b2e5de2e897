"""Tests of examples with several labels each."""

import numpy as np
import pytest

from keras_dml import data

TABLE = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]], bool)


def test_booleans() -> None:
    examples = data.ArraySet(np.arange(4.0), TABLE, names=["red", "b", "big"])
    assert examples.has_label_sets
    assert examples.classes.tolist() == [0, 2]
    assert "with some of 2 labels each" in repr(examples)
    few = examples.select([1, 2])
    np.testing.assert_array_equal(few.labels, TABLE[[1, 2]])
    assert few.names == {2: "big"}
    renumbered = examples.relabeled()
    np.testing.assert_array_equal(renumbered.labels, TABLE[:, [0, 2]])
    assert renumbered.names == {0: "red", 1: "big"}
    with pytest.raises(ValueError, match="read-only"):
        examples.labels[0, 0] = False


def test_sets_of_strings() -> None:
    examples = data.ImageSet(
        np.zeros((3, 4, 4), np.uint8), [{"red", "big"}, set(), {"odd"}]
    )
    assert examples.names == {0: "big", 1: "odd", 2: "red"}
    assert examples.labels.tolist() == [
        [True, False, True], [False] * 3, [False, True, False],
    ]  # fmt: skip
    more = data.ArraySet([[0.0]], [{"new", "red"}], names=examples.names)
    assert more.labels.tolist() == [[False, False, True, True]]


def test_sets_of_numbers_are_columns() -> None:
    examples = data.ArraySet([[0.0], [1.0]], [{0, 3}, {1}])
    assert examples.labels.tolist() == [
        [True, False, False, True], [False, True, False, False],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (TABLE.astype(int), None, r"dtype int64 and shape \(4, 3\).*astype"),
        (TABLE.astype(float), None, "labels.astype"),
        (TABLE[:3], None, "labels"),
        ([{0}, {"a"}, set(), set()], None, "only strings.*'a'"),
        ([{0}, {-1}, set(), set()], None, "'?-1"),
        ([{2**40}, {0}, set(), set()], None, "columns of a table"),
        (TABLE, ["a", "b", "c", "d"], "`names` of ArraySet must name columns"),
    ],
)
def test_bad_labels(labels, names, message) -> None:
    with pytest.raises(ValueError, match=message):
        data.ArraySet(np.arange(4.0), labels, names)


def test_what_needs_one_label_says_so() -> None:
    examples = data.ArraySet(np.arange(4.0), TABLE)
    with pytest.raises(ValueError, match="one label per example"):
        _ = examples.known_labels
    with pytest.raises(ValueError, match="MultiLabelBalanced"):
        data.ClassBalanced(examples.labels, classes_per_batch=2)


def test_joined_sets_have_the_same_labels() -> None:
    first = data.ArraySet(np.arange(4.0), TABLE)
    both = data.concatenate((first, first.select([0])))
    np.testing.assert_array_equal(both.labels, TABLE[[0, 1, 2, 3, 0]])
    with pytest.raises(ValueError, match="booleans for the same labels"):
        data.concatenate((first, first.relabeled()))
    with pytest.raises(ValueError, match="booleans for the same labels"):
        data.concatenate((first, data.ArraySet([9.0], [1])))
