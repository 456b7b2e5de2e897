"""Planned datasets: `tf.data` datasets with batches planned by a sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from keras_dml.data.examples import WHOLE_BATCH, Examples, any_labels_of
from keras_dml.data.samplers import RelationSampler, Sampler
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

_PLAN = "keras_dml_plan"

Parts: TypeAlias = "Callable[[slice, int], tf.data.Dataset]"
"""A function from the requested rows of every batch, and the first step of an
epoch that is requested, to a dataset of these."""


class _Plan(NamedTuple):
    sampler: Sampler
    examples: Examples
    parts: Parts


def planned_by(
    sampler: Sampler, examples: Examples, dataset: tf.data.Dataset, parts: Parts
) -> tf.data.Dataset:
    """The dataset, marked as planned; `parts` makes parts of its batches."""
    setattr(dataset, _PLAN, _Plan(sampler, examples, parts))
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
    """The sampler that planned a dataset, or the one it was made from."""
    plan = _plan_of(dataset)
    return None if plan is None else plan.sampler


def examples_of(dataset: tf.data.Dataset) -> Examples | None:
    plan = _plan_of(dataset)
    return None if plan is None else plan.examples


def _plan_of(dataset: tf.data.Dataset) -> _Plan | None:
    plan: _Plan | None = getattr(dataset, _PLAN, None)
    if plan is None:
        plans = (_plan_of(x) for x in getattr(dataset, "_inputs", tuple)())
        plan = next((x for x in plans if x is not None), None)
    return plan


def map_batches(
    dataset: tf.data.Dataset,
    change: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> tf.data.Dataset:
    """The dataset with each batch changed; it is planned if it was before."""
    result = change(dataset)
    plan: _Plan | None = getattr(dataset, _PLAN, None)
    if plan is None:
        return result
    return planned_by(
        plan.sampler,
        plan.examples,
        result,
        lambda part, step: change(plan.parts(part, step)),
    )


def from_step(dataset: tf.data.Dataset, step: int) -> tf.data.Dataset:
    # If a user has changed the dataset, earlier batches are computed as well.
    plan: _Plan | None = getattr(dataset, _PLAN, None)
    return dataset.skip(step) if plan is None else plan.parts(WHOLE_BATCH, step)


def is_shuffled(dataset: tf.data.Dataset) -> bool:
    """Whether the order of batches is known only to TensorFlow."""
    kind = type(dataset).__name__
    return "Shuffle" in kind or any(map(is_shuffled, dataset._inputs()))


def share_of(
    dataset: tf.data.Dataset, worker: int, workers: int
) -> tf.data.Dataset | None:
    """A worker's rows of every batch of `pipeline`; None for other datasets."""
    plan: _Plan | None = getattr(dataset, _PLAN, None)
    if plan is None:
        return None
    size = plan.sampler.batch_size // workers
    part = slice(worker * size, (worker + 1) * size)
    return planned_by(
        plan.sampler,
        plan.examples,
        plan.parts(part, 0),
        lambda _, step: plan.parts(part, step),
    )


def parts_of(dataset: tf.data.Dataset, part: slice) -> tf.data.Dataset:
    if part == WHOLE_BATCH:
        return dataset
    return dataset.map(
        lambda *batch: tf.nest.map_structure(
            lambda x: x[part], batch[0] if len(batch) == 1 else batch
        )
    )


class RepeatingSampler(Sampler):
    def __init__(self, sampler: Sampler) -> None:
        super().__init__(
            sampler.labels, sampler.batch_size, sampler.seed, sampler.steps
        )
        self.sampler = sampler

    def plan(self, epoch: int) -> Rows:
        return self.sampler.plan(0)
