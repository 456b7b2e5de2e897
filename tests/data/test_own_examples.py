"""Custom example classes, and figures of examples without images."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    Examples,
    concatenate,
    pipeline,
    preview,
)
from keras_dml.data.examples import About
from keras_dml.data.validation import as_rows
from keras_dml.evaluation import embed
from keras_dml.visualization import attention_overlays, retrieval_grid


class Numbers(Examples):
    """Examples computed from numbers."""

    def __init__(self, numbers: Any, about: About) -> None:
        self.numbers = np.asarray(numbers)
        self.labels, self.names, self.ids = vars(about).values()

    def __len__(self) -> int:
        return len(self.numbers)

    def inputs(self, rows: Any) -> Any:
        numbers = self.numbers[as_rows(rows, len(self), "Numbers")]
        return np.stack([np.sin(numbers), np.cos(numbers)], -1)

    def _at(self, rows: Any, about: About) -> "Numbers":
        return Numbers(
            self.numbers if rows is None else self.numbers[rows], about
        )

    @classmethod
    def _join(cls, sets: Sequence["Numbers"], about: About) -> "Numbers":
        return cls(np.concatenate([x.numbers for x in sets]), about)


def numbers(count: int = 12) -> Numbers:
    labels = np.arange(count) % 3
    return Numbers(np.arange(count), About.of(labels, None, None, "Numbers"))


def test_custom_examples_train_and_embed() -> None:
    examples = concatenate([numbers(), numbers(6)]).relabeled()
    sampler = ClassBalanced(examples.labels, 2, 2)
    for x, y in pipeline(examples, sampler):
        np.testing.assert_array_equal(x, examples.inputs(y["index"].numpy()))
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    part = examples.select([13, 2])
    np.testing.assert_allclose(
        embed(network, part), network.predict(part.inputs(...), verbose=0)
    )
    coarse = examples.with_labels(["even", "odd"] * 9)
    assert coarse.names[int(coarse.labels[1])] == "odd"
    with pytest.raises(ValueError, match="Numbers.with_labels must have one"):
        examples.with_labels([1, 2])


def test_examples_without_pictures_are_shown_by_name() -> None:
    texts = ArraySet([f"text {i}" for i in range(9)], np.arange(9) % 3)
    points = np.random.default_rng(0).normal(size=(9, 4))
    figure = retrieval_grid(texts, points, [0, 4], None, num_neighbors=2)
    assert len(figure.axes) == 6
    assert texts.called(4) == "text 4"
    for draw in (
        lambda: preview(texts),
        lambda: attention_overlays(texts, np.ones((9, 2, 2, 1)), [0], None),
    ):
        with pytest.raises(
            ValueError, match="must be an ImageSet, because other"
        ):
            draw()
