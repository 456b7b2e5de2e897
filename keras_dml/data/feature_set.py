"""FeatureSet: examples in the form of a frozen backbone's features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.batches import (
    VIEWS,
    Views,
    duplicate_views,
    planned_batches,
    rows_of,
)
from keras_dml.data.examples import About, Examples, Inputs, Planned
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

FEATURES, MASK = "backbone_features", "backbone_mask"
"""Names that distinguish features from other inputs of a `MetricModel`."""

_OF_LAYER = f"{FEATURES}."


def layer_of(name: str) -> str | None:
    """The layer whose output has this name; None for the whole backbone."""
    return name.removeprefix(_OF_LAYER) if name != FEATURES else None


def features_key(inputs: Any) -> str | None:
    """The name of the features in a batch of inputs, if there are any."""
    for name in inputs if isinstance(inputs, dict) else ():
        if name == FEATURES or name.startswith(_OF_LAYER):
            return str(name)
    return None


def are_features(inputs: Any) -> bool:
    """Whether a batch of inputs consists of features, not of examples."""
    return features_key(inputs) is not None


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(Examples):
    """Examples in the form of a frozen backbone's features.

    `backbones.features` creates it. A `MetricModel` accepts its batches
    instead of images: they bypass the backbone, or its frozen lower part, so a
    step costs only as much as the part that trains.

    Attributes:
        test: Features of the examples as they are embedded: for images, in
            their test view.
        augmented: Features of V random views of each example, starting with
            the first view of all examples. None: training uses `test` as well.
    """

    test: ArraySet
    augmented: ArraySet | None
    labels: Rows | None
    names: Any
    ids: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        test: dict[str, Any],
        augmented: dict[str, Any] | None,
        about: About,
        layer: str | None = None,
    ) -> FeatureSet:
        """Creates a set from arrays of features and masks, by name.

        They are outputs of a layer; None stands for the whole backbone.
        """

        def as_arrays(arrays: dict[str, Any]) -> ArraySet:
            name = FEATURES if layer is None else _OF_LAYER + layer
            return ArraySet(
                {name if k == FEATURES else k: x for k, x in arrays.items()}
            )

        views = None if augmented is None else as_arrays(augmented)
        return cls(as_arrays(test), views, **vars(about))

    @property
    def num_views(self) -> int:
        """Number of random views per example, V."""
        return len(self.augmented) // len(self) if self.augmented else 0

    def __len__(self) -> int:
        return len(self.test)

    def inputs(self, rows: npt.ArrayLike | EllipsisType) -> Inputs:
        return self.test.inputs(rows)

    def _at(self, rows: Rows | None, about: About) -> FeatureSet:
        test, augmented = self.test, self.augmented
        if rows is not None:
            test = test.select(rows)
            starts = len(self) * np.arange(self.num_views)[:, None]
            if augmented is not None:
                augmented = augmented.select(
                    (starts + rows % len(self)).ravel()
                )
        return FeatureSet(test, augmented, **vars(about))

    @classmethod
    def _join(cls, sets: Sequence[FeatureSet], about: About) -> FeatureSet:
        counts = {part.num_views for part in sets}
        if len(counts) > 1:
            raise ValueError(
                "`sets` of concatenate must have features of the same number "
                f"of views. Received: {sorted(counts)}. Compute them again "
                "with the same `num_views`."
            )
        test = sets[0].test._join([x.test for x in sets], about)
        (num_views,) = counts
        parts = [
            part.augmented.select(np.arange(len(part)) + view * len(part))
            for view in range(num_views)
            for part in sets
            if part.augmented is not None
        ]
        nothing = About(None, {}, None)
        augmented = ArraySet._join(parts, nothing) if parts else None
        return cls(test, augmented, **vars(about))


def symbolic_inputs(examples: FeatureSet) -> dict[str, keras.KerasTensor]:
    """Inputs of a functional model that takes these features."""
    first = examples.inputs([0])
    return {
        name: keras.Input(x.shape[1:], dtype=str(x.dtype), name=name)
        for name, x in first.items()
    }


@planned_batches.register(FeatureSet)
def _planned_features(features: FeatureSet, views: Views) -> Planned:
    """Batches with one random view of each example, or two."""
    views.check_none(features, "num_views")
    if features.augmented is None:
        read = rows_of(features.test)
        return duplicate_views(read) if views.num_views == 2 else read
    read = rows_of(features.augmented)
    count, num_views = len(features), features.num_views

    def batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        view_numbers = tf.map_fn(
            lambda step: tf.random.stateless_uniform(
                (views.num_views, rows.shape[1]),
                [views.seed, step],
                maxval=num_views,
                dtype=tf.int64,
                alg="philox",
            ),
            steps,
            fn_output_signature=tf.int64,
        )
        each = [
            read(rows + count * view_numbers[:, view], steps, part)
            for view in range(views.num_views)
        ]
        if len(each) == 1:
            return each[0]
        return tf.data.Dataset.zip(dict(zip(VIEWS, each, strict=True)))

    return batches
