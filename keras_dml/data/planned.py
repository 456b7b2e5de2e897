"""Planned datasets: which sampler makes the batches of a `tf.data` dataset."""

import tensorflow as tf

from keras_dml.data.samplers import Sampler
from keras_dml.utils.types import Rows

_SAMPLER = "keras_dml_sampler"


def planned_by(sampler: Sampler, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset, which from now on says that a sampler plans it."""
    setattr(dataset, _SAMPLER, sampler)
    return dataset


def sampler_of(dataset: tf.data.Dataset) -> Sampler | None:
    """The sampler that plans a dataset, or what the dataset was made of."""
    found: Sampler | None = getattr(dataset, _SAMPLER, None)
    if found is None:
        inputs = map(sampler_of, dataset._inputs())
        found = next((sampler for sampler in inputs if sampler), None)
    return found


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
