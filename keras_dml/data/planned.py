"""Planned datasets: which sampler makes the batches of a `tf.data` dataset."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from keras_dml.data.examples import WHOLE, Examples
from keras_dml.data.samplers import Sampler
from keras_dml.utils.types import Rows

_SAMPLER = "keras_dml_sampler"
_PARTS = "keras_dml_parts"
_EXAMPLES = "keras_dml_examples"

Parts: TypeAlias = Callable[[slice, int], tf.data.Dataset]
"""From which rows of every batch are wanted, and the first step of an epoch
that is, to a dataset of these."""


Change: TypeAlias = Callable[[tf.data.Dataset], tf.data.Dataset]


def planned_by(
    sampler: Sampler,
    examples: Examples | None,
    dataset: tf.data.Dataset,
    parts: Parts,
) -> tf.data.Dataset:
    """The dataset, which from now on says that a sampler plans it.

    Args:
        sampler: What plans the batches.
        examples: What they are made of, if it is known.
        dataset: The batches.
        parts: What makes the same batches in part.
    """
    setattr(dataset, _SAMPLER, sampler)
    setattr(dataset, _EXAMPLES, examples)
    setattr(dataset, _PARTS, parts)
    return dataset


def sampler_of(dataset: tf.data.Dataset) -> Sampler | None:
    """The sampler that plans a dataset, or what the dataset was made of."""
    sampler: Sampler | None = _found(dataset, _SAMPLER)
    return sampler


def examples_of(dataset: tf.data.Dataset) -> Examples | None:
    """What the batches of a planned dataset are made of, if it is known."""
    examples: Examples | None = _found(dataset, _EXAMPLES)
    return examples


def _found(dataset: tf.data.Dataset, name: str) -> Any:
    found = getattr(dataset, name, None)
    if found is None:
        inputs = (_found(x, name) for x in dataset._inputs())
        found = next((x for x in inputs if x is not None), None)
    return found


def changed(dataset: tf.data.Dataset, change: Change) -> tf.data.Dataset:
    """`change(dataset)`, whose parts are the changed parts of the dataset.

    Args:
        dataset: Any; what it is planned by, if anything, the result is.
        change: Makes of each batch, in their order, another.
    """
    result = change(dataset)
    parts: Parts | None = getattr(dataset, _PARTS, None)
    if parts is None:
        return result
    return planned_by(
        getattr(dataset, _SAMPLER),
        getattr(dataset, _EXAMPLES),
        result,
        lambda part, step: change(parts(part, step)),
    )


def from_step(dataset: tf.data.Dataset, step: int) -> tf.data.Dataset:
    """The batches of an epoch from some step on.

    Those before it are made and thrown away where a user has changed the
    dataset, and are not made otherwise.
    """
    parts: Parts | None = getattr(dataset, _PARTS, None)
    return dataset.skip(step) if parts is None else parts(WHOLE, step)


def is_shuffled(dataset: tf.data.Dataset) -> bool:
    """Whether batches come in an order that only TensorFlow knows."""
    kind = type(dataset).__name__
    return "Shuffle" in kind or any(map(is_shuffled, dataset._inputs()))


def share_of(
    dataset: tf.data.Dataset, worker: int, workers: int
) -> tf.data.Dataset | None:
    """A worker's rows of every batch, of which only these are read.

    Worker w has the w-th of equal stretches of rows.

    Args:
        dataset: As it came from `pipeline`.
        worker: Number of the worker, from 0.
        workers: Number of workers, which divides that of the rows.

    Returns:
        None if the dataset is another, or has been changed since.
    """
    parts: Parts | None = getattr(dataset, _PARTS, None)
    sampler: Sampler | None = getattr(dataset, _SAMPLER, None)
    if parts is None or sampler is None:
        return None
    size = sampler.batch_size // workers
    part = slice(worker * size, (worker + 1) * size)
    return planned_by(
        sampler,
        getattr(dataset, _EXAMPLES),
        parts(part, 0),
        lambda _, step: parts(part, step),
    )


def parts_of(dataset: tf.data.Dataset, part: slice) -> tf.data.Dataset:
    """Part of the rows of every batch."""
    if part == WHOLE:
        return dataset
    return dataset.map(
        lambda *batch: tf.nest.map_structure(
            lambda x: x[part], batch[0] if len(batch) == 1 else batch
        )
    )


class Repeated(Sampler):
    """Plans every epoch as another sampler does its first.

    Args:
        sampler: The other one.
    """

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(
            sampler.labels, sampler.batch_size, sampler.seed, sampler.steps
        )
        self.sampler = sampler

    def plan(self, epoch: int) -> Rows:
        return self.sampler.plan(0)
