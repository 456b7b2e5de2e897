"""Data sets: split by class, and registered by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keras_dml.data.examples import (
    E,
    Examples,
    any_labels_of,
    concatenate,
    labels_of,
)
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Rows

if TYPE_CHECKING:
    from keras_dml.data.archives.reading import Archive


@dataclass(frozen=True)
class DataSplits:
    """A data set, split by class: no class is on two sides.

    Where examples have several labels each, no example is, but labels are:
    results are on examples that were not seen, not on labels.

    Raises:
        ValueError: If a set has no labels, or training and other sets share
            a class; if some have several labels per example, and others one,
            or those of other columns.

    Attributes:
        train: What a model is trained on while it is being chosen.
        validation: Held-out training classes, for choosing a model; none
            where all are trained on.
        test: The classes that results are reported on.
        name: Name of the data set.
        query_rows: Rows of `test` that are queries, where not all are.
        gallery_rows: Rows of `test` to search among, where not all are.
        cameras: Camera of every test image, (N,), where the data set says
            it: the `exclude` of `keras_dml.evaluation.evaluate`.
        tests: Test sets by name, where there are several; `test` is one
            of them.
        levels: Classes of every test image, (N,), at each level of a
            hierarchy, by its name: the `labels` of
            `keras_dml.evaluation.evaluate`. The labels of the sets are one
            level, that which is trained on.
    """

    train: Examples
    validation: Examples
    test: Examples
    name: str
    query_rows: Rows | None = None
    gallery_rows: Rows | None = None
    cameras: Rows | None = None
    tests: Mapping[str, Examples] = field(
        default_factory=lambda: MappingProxyType({})
    )
    levels: Mapping[str, Rows] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def __post_init__(self) -> None:
        trained = {"train": self.train, "validation": self.validation}
        others = {**trained, "test": self.test, **self.tests}
        labels = [
            any_labels_of(examples, f"{name}.labels", "DataSplits")
            for name, examples in others.items()
        ]
        if len({x.shape[1:] for x in labels}) > 1:
            raise ValueError(
                f"The sets of DataSplits {self.name!r} must all have one "
                "label per example, or booleans for the same labels. "
                f"Received: {', '.join(map(repr, others.values()))}."
            )
        if self.train.has_label_sets:
            return
        for (name, images), (other, seen) in combinations(others.items(), 2):
            both = np.intersect1d(images.classes, seen.classes)
            # Test sets may have classes in common.
            if len(both) and name in trained:
                label = int(both[0])
                raise ValueError(
                    f"The sets of DataSplits {self.name!r} must not share a "
                    f"class. Received: {len(both)} classes in both {name} and "
                    f"{other}, such as {images.names.get(label, label)}."
                )

    @cached_property
    def trainval(self) -> Examples:
        """The paper's full training set: `train`, then `validation`."""
        return concatenate((self.train, self.validation))

    @classmethod
    def by_class(
        cls,
        images: Examples,
        name: str,
        train_classes: int | float = 0.5,
        validation: float = 0.2,
        seed: int = 0,
    ) -> "DataSplits":
        """Splits as CUB-200 and Cars196 are split, then holds out classes.

        Args:
            images: The whole data set.
            name: Name of the data set.
            train_classes: As for `split_classes`.
            validation: As for `holding_out`, and so is `seed`.
        """
        trainval, test = split_classes(images, train_classes)
        return cls.holding_out(trainval, test, name, validation, seed)

    @classmethod
    def holding_out(
        cls,
        trainval: Examples,
        test: Examples,
        name: str,
        validation: float = 0.2,
        seed: int = 0,
        **fields: Any,
    ) -> "DataSplits":
        """Splits from training and test sets: holds out classes of the first.

        Args:
            trainval: The full training set.
            test: The test set.
            name: Name of the data set.
            validation: The fraction of the training classes held out: see
                `holdout_classes`.
            seed: Which classes those are.
            **fields: Other attributes of the splits.

        Raises:
            ValueError: If there are not enough classes to hold some out,
                or if a class is on both sides.
        """
        train, held_out = holdout_classes(trainval, validation, seed)
        return cls(train, held_out, test, name, **fields)


Loader = TypeVar("Loader", bound=Callable[..., DataSplits])

DATASETS: Registry[Callable[..., DataSplits]] = Registry("data set")
"""Every data set by the name that recipes use."""


def dataset(
    name: str,
    definition: str,
    *,
    archive: "Archive | None" = None,
    leave_out: Sequence[str] = (),
) -> Callable[[Loader], Loader]:
    """A decorator that makes a function a data set, by name.

    A recipe's section has the arguments of the function, with their types,
    ranges and defaults; `seed` is the recipe's.

    Args:
        name: What recipes call it.
        definition: What is in it, in one line.
        archive: What it is read from, for `data.check`. Recipes take all
            of it, and so set no `counts`.
        leave_out: Arguments that recipes do not set.
    """
    left_out = [*leave_out, *["counts"] * (archive is not None)]
    register: Any = DATASETS.register(
        name, definition, archive=archive, leave_out=left_out
    )
    return register


def split_classes(images: E, train_classes: int | float = 0.5) -> tuple[E, E]:
    """Training and test set, cut by class as CUB-200 and Cars196 are: the
    classes in ascending order, the first ones to train, the others to test.

    Args:
        images: The set to cut.
        train_classes: Number of training classes if an integer; their
            fraction, rounded to a whole number (halves up), if a float.

    Raises:
        ValueError: If either side would have no class, or examples have not
            one label each.
    """
    labels = labels_of(images, "images.labels", "split_classes")
    count = train_classes
    if isinstance(count, float):
        count = int(count * images.num_classes + 0.5)
    if isinstance(count, bool) or not 0 < count < images.num_classes:
        raise ValueError(
            "`train_classes` of split_classes must leave at least one "
            f"class on either side. Received: train_classes={train_classes} "
            f"of {images.num_classes} classes. Use 1 to "
            f"{images.num_classes - 1}, or a fraction such as 0.5."
        )
    is_train = labels < images.classes[count]
    return images.select(is_train), images.select(~is_train)


def holdout_classes(
    images: E, fraction: float = 0.2, seed: int = 0
) -> tuple[E, E]:
    """Training and validation set: a seeded random fraction of the classes.

    Choosing a model on held-out training classes keeps the test classes
    for reporting alone.

    Args:
        images: The training set.
        fraction: Fraction of the classes to hold out, rounded to a whole
            number, at least one; 0 holds out none, and leaves the validation
            set empty.
        seed: Which classes are held out.

    Raises:
        ValueError: If the fraction is not at least 0 and below 1, or if no
            class would be left to train on.
    """
    if fraction == 0:
        return images, images.select([])
    classes = images.classes
    count = max(1, int(fraction * len(classes) + 0.5))
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` of holdout_classes, the share of training classes "
            "held out for validation, must be at least 0 and below 1. "
            f"Received: fraction={fraction}. Use for instance 0.2."
        )
    if count >= len(classes):
        raise ValueError(
            f"A share of {fraction} of the training classes is held out for "
            "validation (`fraction` of holdout_classes), and at least one "
            f"must be left. Received: {len(classes)} training classes. Use "
            "more training classes, at least two, or a smaller share."
        )
    order = np.random.default_rng(seed).permutation(len(classes))
    held_out = np.isin(images.known_labels, classes[order[:count]])
    return images.select(~held_out), images.select(held_out)
