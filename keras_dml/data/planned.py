"""Planned datasets: `tf.data` datasets with batches planned by a sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from keras_dml.data.examples import WHOLE, Examples, any_labels_of
from keras_dml.data.samplers import RelationSampler, Sampler
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

_SAMPLER = "keras_dml_sampler"
_PARTS = "keras_dml_parts"
_EXAMPLES = "keras_dml_examples"

Parts: TypeAlias = "Callable[[slice, int], tf.data.Dataset]"
"""A function from the requested rows of every batch, and the first step of an
epoch that is requested, to a dataset of these."""


Change: TypeAlias = "Callable[[tf.data.Dataset], tf.data.Dataset]"


def planned_by(
    sampler: Sampler,
    examples: Examples | None,
    dataset: tf.data.Dataset,
    parts: Parts,
) -> tf.data.Dataset:
    """Marks the dataset as planned by a sampler, and returns it.

    Args:
        sampler: The sampler that plans the batches.
        examples: The examples in the batches, if known.
        dataset: The batches.
        parts: Function that makes parts of the same batches.
    """
    setattr(dataset, _SAMPLER, sampler)
    setattr(dataset, _EXAMPLES, examples)
    setattr(dataset, _PARTS, parts)
    return dataset


def check_made_from(sampler: Sampler, examples: Examples, owner: str) -> None:
    """Raises `ValueError` unless a sampler is one of these examples."""
    if isinstance(sampler, RelationSampler):
        if examples is not sampler.relations.examples:
            raise ValueError(
                f"`sampler` of {owner} must be made from relations of "
                f"`examples`. Received: {sampler.relations!r}, and "
                f"{examples!r}. Use {owner}(relations.examples, …)."
            )
        return
    labels = any_labels_of(examples, "examples.labels", owner)
    if not np.array_equal(sampler.labels, labels):
        raise ValueError(
            f"`sampler` of {owner} must be made from the labels of "
            f"`examples`. Received: {sampler!r} for {examples!r}. Use, for "
            "example, ClassBalanced(examples.labels, classes_per_batch=32)."
        )


def sampler_of(dataset: Any) -> Sampler | None:
    """The sampler that planned a dataset, or the one it was made from.

    Args:
        dataset: Any data; None is returned for all but planned datasets.
    """
    sampler: Sampler | None = _found(dataset, _SAMPLER)
    return sampler


def examples_of(dataset: tf.data.Dataset) -> Examples | None:
    """The examples in the batches of a planned dataset, if known."""
    examples: Examples | None = _found(dataset, _EXAMPLES)
    return examples


def _found(dataset: tf.data.Dataset, name: str) -> Any:
    found = getattr(dataset, name, None)
    if found is None:
        inputs = (_found(x, name) for x in getattr(dataset, "_inputs", tuple)())
        found = next((x for x in inputs if x is not None), None)
    return found


def changed(dataset: tf.data.Dataset, change: Change) -> tf.data.Dataset:
    """`change(dataset)`, whose parts are the changed parts of the dataset.

    Args:
        dataset: Any dataset; if a sampler planned it, it also planned the
            result.
        change: Function that changes each batch and preserves their order.
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
    """The batches of an epoch from a given step.

    If a user has changed the dataset, earlier batches are computed and
    discarded; otherwise they are not computed.
    """
    parts: Parts | None = getattr(dataset, _PARTS, None)
    return dataset.skip(step) if parts is None else parts(WHOLE, step)


def is_shuffled(dataset: tf.data.Dataset) -> bool:
    """Whether the order of batches is known only to TensorFlow."""
    kind = type(dataset).__name__
    return "Shuffle" in kind or any(map(is_shuffled, dataset._inputs()))


def share_of(
    dataset: tf.data.Dataset, worker: int, workers: int
) -> tf.data.Dataset | None:
    """A worker's rows of every batch; no other rows are read.

    Worker w has the w-th of equally long parts.

    Args:
        dataset: A dataset, as returned by `pipeline`.
        worker: Number of the worker, from 0.
        workers: Number of workers, which divides the number of rows.

    Returns:
        None if the dataset is of another kind, or has been changed since.
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
    """Plans every epoch like the first epoch of another sampler.

    Args:
        sampler: The other sampler.
    """

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(
            sampler.labels, sampler.batch_size, sampler.seed, sampler.steps
        )
        self.sampler = sampler

    def plan(self, epoch: int) -> Rows:
        return self.sampler.plan(0)
