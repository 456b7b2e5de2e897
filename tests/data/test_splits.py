"""Tests of splits by class."""

import numpy as np
import pytest

from keras_dml.data import DataSplits, ImageSet, holdout_classes, split_classes


def make(classes: int) -> ImageSet:
    """Three images a class, labels 10, 20, …, mixed."""
    labels = 10 * np.tile(np.arange(1, classes + 1), 3)
    return ImageSet([f"{i}.jpg" for i in range(len(labels))], labels)


def test_first_half_trains_second_half_tests() -> None:
    train, test = split_classes(make(4))
    assert train.classes.tolist() == [10, 20]
    assert test.classes.tolist() == [30, 40]
    assert train.paths == tuple(f"{i}.jpg" for i in (0, 1, 4, 5, 8, 9))


@pytest.mark.parametrize(
    ("train_classes", "expected"),
    [(0.5, 51), (51, 51), (1, 1), (100, 100), (0.2, 20)],
)
def test_split_classes_takes_a_number_or_a_share(
    train_classes: int | float, expected: int
) -> None:
    train, test = split_classes(make(101), train_classes)
    assert train.num_classes == expected
    assert test.num_classes == 101 - expected
    assert len(train) + len(test) == 303


def test_holdout_is_seeded() -> None:
    images = make(20)
    train, held_out = holdout_classes(images, seed=3)
    assert held_out.num_classes == 4
    assert not set(train.classes) & set(held_out.classes)
    assert set(train.classes) | set(held_out.classes) == set(images.classes)
    again = holdout_classes(images, seed=3)[1]
    other = holdout_classes(images, seed=4)[1]
    assert again.paths == held_out.paths
    assert other.classes.tolist() != held_out.classes.tolist()


@pytest.mark.parametrize(
    ("classes", "held_out"), [(2, 1), (3, 1), (4, 2), (7, 2), (13, 3)]
)
def test_at_least_two_classes_are_held_out_if_two_remain(
    classes, held_out
) -> None:
    parts = holdout_classes(make(classes))
    assert [x.num_classes for x in parts] == [classes - held_out, held_out]


def test_groups_are_held_out_whole() -> None:
    images = make(20)
    # Ten groups of one to three classes.
    groups = np.array(
        ["a", "b", "b", "c", "d", "d", "d", *"efghij"] + ["j"] * 7
    )
    group_of = dict(zip(images.classes.tolist(), groups, strict=True))
    each = [group_of[x] for x in images.labels.tolist()]
    chosen = set()
    for seed in range(8):
        train, held_out = holdout_classes(images, 0.2, seed, each)
        sides = [{group_of[x] for x in y.classes} for y in (train, held_out)]
        assert not sides[0] & sides[1]
        assert train.num_classes + held_out.num_classes == 20
        assert held_out.num_classes
        chosen.add(tuple(held_out.classes))
    assert len(chosen) > 4


def test_groups_come_as_near_to_the_fraction_as_they_can() -> None:
    images = make(12)
    pairs = (images.labels // 10 - 1) // 2
    for fraction, count in [(0.1, 2), (0.3, 4), (0.5, 6), (0.9, 10)]:
        held_out = holdout_classes(images, fraction, 1, pairs)[1]
        assert held_out.num_classes == count


def test_trainval_is_train_and_validation() -> None:
    images = make(10)
    splits = DataSplits.by_class(images, "ten", train_classes=6, seed=1)
    assert splits.train.num_classes == 4
    assert splits.validation.num_classes == 2
    assert splits.trainval.classes.tolist() == [10, 20, 30, 40, 50, 60]
    assert splits.test.classes.tolist() == [70, 80, 90, 100]
    assert sorted(splits.trainval.paths) == sorted(
        split_classes(images, 6)[0].paths or ()
    )
    assert splits.trainval is splits.trainval


def test_sets_must_not_share_a_class() -> None:
    images = make(10)
    sides = [images.select(images.labels <= 10 * n) for n in (5, 6)]
    other = images.select(images.labels > 60)
    with pytest.raises(ValueError, match="5 classes in both train and valid"):
        DataSplits(*sides, other, "ten")
    with pytest.raises(ValueError, match="both train and test, such as 10"):
        DataSplits(sides[0], other, sides[1], "ten")
    with pytest.raises(ValueError, match="both train and large"):
        last = images.select(images.labels == 60)
        DataSplits(sides[0], other, last, "ten", tests={"large": sides[1]})
    with pytest.raises(ValueError, match="both (train|validation) and test"):
        DataSplits.holding_out(sides[0], sides[1], "ten")
