"""Planned datasets: which sampler makes the batches of a `tf.data` dataset."""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from keras_dml.data.examples import WHOLE
from keras_dml.data.samplers import Sampler
from keras_dml.utils.types import Rows

_SAMPLER = "keras_dml_sampler"
_PARTS = "keras_dml_parts"

Parts: TypeAlias = Callable[[slice, int], tf.data.Dataset]
"""From which rows of every batch are wanted, and the first step of an epoch
that is, to a dataset of these."""


def planned_by(
    sampler: Sampler, dataset: tf.data.Dataset, parts: Parts
) -> tf.data.Dataset:
    """The dataset, which from now on says that a sampler plans it.

    Args:
        sampler: What plans the batches.
        dataset: The batches.
        parts: What makes the same batches in part.
    """
    setattr(dataset, _SAMPLER, sampler)
    setattr(dataset, _PARTS, parts)
    return dataset


def sampler_of(dataset: tf.data.Dataset) -> Sampler | None:
    """The sampler that plans a dataset, or what the dataset was made of."""
    found: Sampler | None = getattr(dataset, _SAMPLER, None)
    if found is None:
        inputs = map(sampler_of, dataset._inputs())
        found = next((sampler for sampler in inputs if sampler), None)
    return found


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
    return parts(slice(worker * size, (worker + 1) * size), 0)


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
