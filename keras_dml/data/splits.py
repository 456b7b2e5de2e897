"""Data sets: split by class, and registered by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from keras_dml.data.archive import Archive
from keras_dml.data.examples import (
    E,
    Examples,
    any_labels_of,
    concatenate,
    labels_of,
)
from keras_dml.data.validation import check_lengths
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Rows


@dataclass(frozen=True)
class DataSplits:
    """A data set that is split by class: no class is in two splits.

    If examples have several labels each, no example is in two splits, but
    labels may be: results then apply to unseen examples, not to unseen labels.

    Raises:
        ValueError: If a set has no labels, or the training set shares a class
            with another set; if some sets have several labels per example and
            others one, or the columns of labels differ.

    Attributes:
        train: The set that a model is trained on during model selection.
        validation: Held-out training classes, for model selection; empty if
            all classes are trained on.
        test: The classes on which results are reported.
        name: Name of the data set.
        query_rows: Rows of `test` that are queries, if not all are.
        gallery_rows: Rows of `test` that are searched, if not all are.
        cameras: Camera of every test image, (N,), if the data set lists it:
            the `exclude` of `keras_dml.evaluation.evaluate`.
        tests: Test sets by name, if there are several; `test` is one of them.
        levels: Classes of every test image, (N,), at each level of a
            hierarchy, by its name: the `labels` of
            `keras_dml.evaluation.evaluate`. The labels of the sets are the
            level that is trained on.
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
        sets = {**trained, "test": self.test, **self.tests}
        labels = [
            any_labels_of(examples, f"{name}.labels", "DataSplits")
            for name, examples in sets.items()
        ]
        if len({x.shape[1:] for x in labels}) > 1:
            raise ValueError(
                f"The sets of DataSplits {self.name!r} must all have one "
                "label per example, or booleans for the same labels. "
                f"Received: {', '.join(map(repr, sets.values()))}."
            )
        if self.train.has_label_sets:
            return
        for (name, a), (other, b) in combinations(sets.items(), 2):
            both = np.intersect1d(a.classes, b.classes)
            # Test sets may have classes in common.
            if len(both) and name in trained:
                label = int(both[0])
                raise ValueError(
                    f"The sets of DataSplits {self.name!r} must not share a "
                    f"class. Received: {len(both)} classes in both {name} and "
                    f"{other}, such as {a.names.get(label, label)}."
                )

    @cached_property
    def trainval(self) -> Examples:
        """The paper's full training set: `train`, then `validation`."""
        return concatenate((self.train, self.validation))

    def part(self, name: str) -> Examples:
        """Returns one of the sets by its name.

        Args:
            name: "train", "validation", "test", or the name of one of `tests`.

        Raises:
            ValueError: If there is no set of this name.
        """
        parts = {
            "train": self.train,
            "validation": self.validation,
            "test": self.test,
            **self.tests,
        }
        return parts[check_choice("DataSplits.part", "name", name, parts)]

    @classmethod
    def by_class(
        cls,
        images: Examples,
        name: str,
        train_classes: int | float = 0.5,
        validation: float = 0.2,
        seed: int = 0,
    ) -> "DataSplits":
        """Splits like CUB-200 and Cars196, then holds out classes.

        Args:
            images: The whole data set.
            name: Name of the data set.
            train_classes: See `split_classes`.
            validation: See `holding_out`.
            seed: See `holding_out`.
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
        groups: npt.ArrayLike | None = None,
        **fields: Any,
    ) -> "DataSplits":
        """Creates splits from training and test sets by holding out classes.

        Args:
            trainval: The full training set, from which classes are held out.
            test: The test set.
            name: Name of the data set.
            validation: The fraction of the training classes to hold out: see
                `holdout_classes`.
            seed: Determines which classes are held out.
            groups: See `holdout_classes`.
            **fields: Other attributes of the splits.

        Raises:
            ValueError: If there are not enough classes to hold some out, or if
                a class is in two splits.
        """
        train, held_out = holdout_classes(trainval, validation, seed, groups)
        return cls(train, held_out, test, name, **fields)


Loader = TypeVar("Loader", bound=Callable[..., DataSplits])

DATASETS: Registry[Callable[..., DataSplits]] = Registry("data set")
"""All data sets by their names, which recipes use."""


def dataset(
    name: str,
    definition: str,
    *,
    archive: Archive | None = None,
    leave_out: Sequence[str] = (),
) -> Callable[[Loader], Loader]:
    """Returns a decorator that registers a function as a data set.

    The section of a recipe has the arguments of the function, with their
    types, ranges and defaults; `seed` is that of the recipe.

    Args:
        name: The data set's name in recipes.
        definition: A one-line description of its contents.
        archive: The archive that it is read from, for `data.check`. Recipes
            require all of it, and therefore do not set `counts`.
        leave_out: Arguments that recipes do not set.
    """
    left_out = [*leave_out, *["counts"] * (archive is not None)]
    register: Any = DATASETS.register(
        name, definition, archive=archive, leave_out=left_out
    )
    return register


def split_classes(images: E, train_classes: int | float = 0.5) -> tuple[E, E]:
    """Splits a set by class, as CUB-200 and Cars196 are split.

    Classes are in ascending order; the first ones are for training, the others
    for testing.

    Args:
        images: The set to split.
        train_classes: Number of training classes if an integer; their
            fraction, rounded to a whole number (halves up), if a float.

    Raises:
        ValueError: If either part would have no class, or examples do not have
            one label each.
    """
    labels = labels_of(images, "images.labels", "split_classes")
    count = train_classes
    if isinstance(count, float):
        count = int(count * images.num_classes + 0.5)
    if isinstance(count, bool) or not 0 < count < images.num_classes:
        count = images.num_classes
        raise ValueError(
            "`train_classes` of split_classes must leave at least one "
            "class in both parts. Received: "
            f"train_classes={train_classes}, images.num_classes={count}. "
            + (
                f"Use 1 to {count - 1}, or a fraction such as 0.5."
                if count > 1
                else "Use images of two classes or more."
            )
        )
    is_train = labels < images.classes[count]
    return images.select(is_train), images.select(~is_train)


def holdout_classes(
    images: E,
    fraction: float = 0.2,
    seed: int = 0,
    groups: npt.ArrayLike | None = None,
) -> tuple[E, E]:
    """Splits a training set: a seeded random share of classes is held out.

    Model selection on held-out training classes reserves the test classes for
    reporting results.

    Args:
        images: The training set.
        fraction: Fraction of the classes to hold out, rounded to a whole
            number, at least two where two remain, or else one: among images
            of one class every result is right. 0 holds out none, and the
            validation set is empty.
        seed: Determines which classes are held out.
        groups: Optional (N,), the group of each image, such as the
            super-class of its class. Classes of a group are then held out
            together, so that none of them resembles one that is trained on.
            Random groups are added until the number of their classes is as
            near as possible to the fraction.

    Raises:
        ValueError: If the fraction is not at least 0 and below 1, if no class
            would be left to train on, or a class is in several groups.
    """
    if fraction == 0:
        return images, images.select([])
    classes = images.classes
    min_classes = 2 if len(classes) >= 4 else 1
    count = max(min_classes, int(fraction * len(classes) + 0.5))
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` of holdout_classes, the share of training classes "
            "held out for validation, must be at least 0 and below 1. "
            f"Received: fraction={fraction}. Use, for example, 0.2."
        )
    if count >= len(classes):
        raise ValueError(
            f"A share of {fraction} of the training classes is held out for "
            "validation (`fraction` of holdout_classes), and at least one "
            f"class must remain. Received: {len(classes)} training classes. "
            "Use more training classes, at least two, or a smaller share."
        )
    rng = np.random.default_rng(seed)
    if groups is None:
        chosen = classes[rng.permutation(len(classes))[:count]]
    else:
        chosen = _classes_of_groups(images, groups, count, rng)
    held_out = np.isin(images.known_labels, chosen)
    return images.select(~held_out), images.select(held_out)


def _classes_of_groups(
    images: Examples,
    groups: npt.ArrayLike,
    count: int,
    rng: np.random.Generator,
) -> Rows:
    """About `count` classes: all of some random groups, but not of every."""
    names, codes = np.unique(np.asarray(groups), return_inverse=True)
    check_lengths("holdout_classes", "images", len(images), groups=codes)
    pairs = np.unique(np.stack([images.known_labels, codes], 1), axis=0)
    labels, times = np.unique(pairs[:, 0], return_counts=True)
    if len(pairs) > len(labels):
        label = int(labels[np.argmax(times)])
        several = names[pairs[pairs[:, 0] == label, 1]].tolist()
        raise ValueError(
            "`groups` of holdout_classes must be groups of classes. Received: "
            f"class {images.names.get(label, label)} in {several[:3]}. Use a "
            "group that all images of a class share."
        )
    if len(names) < 2:
        raise ValueError(
            "`groups` of holdout_classes must have at least two groups of "
            "training classes, one to hold out and one to train on. Received: "
            f"{names.tolist()}."
        )
    order = rng.permutation(len(names))[:-1]
    sizes = np.bincount(pairs[:, 1])[order].cumsum()
    chosen = order[: np.argmin(np.abs(sizes - count)) + 1]
    held_out: Rows = pairs[np.isin(pairs[:, 1], chosen), 0]
    return held_out
