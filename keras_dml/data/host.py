"""Batches read in Python, for other backends than TensorFlow."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils

# `fit` takes such adapters in place of data; Keras does not export them.
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from keras_dml.data.examples import (
    WHOLE_BATCH,
    Examples,
    any_labels_of,
    check_examples,
)
from keras_dml.data.imageset import ImageSet
from keras_dml.data.planned import check_made_from, planned_by
from keras_dml.data.samplers import RelationSampler, Sampler
from keras_dml.data.view import View
from keras_dml.utils.arguments import check_arguments, import_extra
from keras_dml.utils.types import Count, NonNegativeInt, Rows

Prepare = Callable[[Any, np.random.Generator], Any]
"""From the input of an example, and a random generator, to the model's."""


class FitBatches(DataAdapter):
    """Batches for `fit`, the last of which may be short."""

    @property
    def has_partial_batch(self) -> bool | None:
        return None

    @property
    def partial_batch_size(self) -> int | None:
        return None


class HostBatches(FitBatches):
    """Batches (x, y) of arrays for `fit`, an epoch for every iteration.

    It has the methods of a `tf.data.Dataset` that planned batches need.
    """

    def __init__(
        self, epoch: Callable[[], Iterable[Any]], count: int | None
    ) -> None:
        self._epoch = epoch
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        yield from self._epoch()

    def map(self, change: Callable[..., Any]) -> "HostBatches":
        return HostBatches(
            lambda: (change(*batch) for batch in self), self._count
        )

    def cardinality(self) -> int:
        return -1 if self._count is None else self._count

    def _inputs(self) -> tuple[()]:
        return ()

    def get_numpy_iterator(self) -> Iterator[Any]:
        return data_adapter_utils.get_numpy_iterator(self)

    def get_jax_iterator(self) -> Iterator[Any]:
        return data_adapter_utils.get_jax_iterator(self)

    @property
    def num_batches(self) -> int | None:
        return self._count

    @property
    def batch_size(self) -> int | None:
        return None


@check_arguments
def grain_pipeline(
    examples: Examples,
    sampler: Sampler,
    prepare: Prepare | None = None,
    seed: NonNegativeInt = 0,
    threads: Count = 16,
) -> HostBatches:
    """Training batches as planned by a sampler, read by Grain.

    It needs no TensorFlow. As with `pipeline`, every iteration is one epoch,
    and a batch is a function of the plan, the seed, the epoch and the step, so
    that a run can be resumed.

    Args:
        examples: An `ImageSet`, `ArraySet` or other `Examples`, with labels.
        sampler: A sampler of their labels.
        prepare: Function from the input of one example, such as pixels, (H,
            W, C) uint8, and a `numpy.random.Generator` of its own, to what the
            model takes, or a dict of views. None: the inputs, of one size.
        seed: Seed of these generators.
        threads: Number of batches that are read at a time.

    Returns:
        `sampler.steps` batches `(x, y)`, as from `pipeline`, for `fit` on JAX.
        Pixels become float32.

    Raises:
        ValueError: If the examples have no labels, if the sampler was made
            from other labels, or on the backend TensorFlow.
        ImportError: If Grain is not installed.
    """
    check_examples(examples, "grain_pipeline")
    if keras.backend.backend() == "tensorflow":
        raise ValueError(
            "`grain_pipeline` must be used on the backend JAX. Received: "
            "batches for TensorFlow. Use keras_dml.data.pipeline."
        )
    grain = import_extra("grain_pipeline", "grain", "grain")
    reads = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)

    def in_threads(read: Callable[[int], Any], steps: range) -> Iterable[Any]:
        source = grain.MapDataset.source(steps).map(read)
        return source.to_iter_dataset(reads)

    return host_pipeline(
        examples, sampler, "grain_pipeline", prepare, seed, in_threads
    )


def host_pipeline(
    examples: Examples,
    sampler: Sampler,
    owner: str,
    prepare: Prepare | None = None,
    seed: int = 0,
    each: Callable[[Callable[[int], Any], range], Iterable[Any]] = map,
) -> HostBatches:
    """Planned batches for `owner`; see `grain_pipeline`.

    `each` is like `map`: it returns what a function returns for each step.
    """
    check_made_from(sampler, examples, owner)
    labels_of_rows = (
        sampler.batch_labels
        if isinstance(sampler, RelationSampler)
        else any_labels_of(examples, "examples", owner).__getitem__
    )

    def parts(part: slice, first_step: int) -> HostBatches:
        def epoch() -> Iterator[Any]:
            number = sampler.epoch
            rows, targets = sampler.plan(number), sampler.targets(number)
            sampler.epoch = number + 1

            def read(step: int) -> Any:
                key = (seed, number, step)
                try:
                    x = _inputs(examples, rows[step], part, prepare, key)
                except ValueError:
                    bad_files = getattr(examples, "bad_files", None)
                    if bad_files is None:
                        raise
                    good = [
                        bad_files.replacement(examples, x) for x in rows[step]
                    ]
                    x = _inputs(examples, np.array(good), part, prepare, key)
                step_targets = {
                    name: np.broadcast_to(targets[name][step], rows[step].shape)
                    for name in sampler.target_names
                }
                y = {
                    "label": labels_of_rows(rows[step]),
                    "index": rows[step],
                    **step_targets,
                }
                return x, {name: value[part] for name, value in y.items()}

            yield from each(read, range(first_step, sampler.steps))

        return HostBatches(epoch, sampler.steps - first_step)

    return planned_by(sampler, examples, parts(WHOLE_BATCH, 0), parts)


def _inputs(
    examples: Examples,
    rows: Rows,
    part: slice,
    prepare: Prepare | None,
    key: tuple[int, ...],
) -> Any:
    if prepare is None:
        return _as_floats(examples, examples.inputs(rows[part]))

    def view(number: int) -> Any:
        rng = np.random.default_rng((*key, number))
        row = rows[number]
        if isinstance(examples, ImageSet):  # Files may differ in size.
            return prepare(examples.read(row), rng)
        one = keras.tree.map_structure(lambda x: x[0], examples.inputs([row]))
        return prepare(one, rng)

    views = [view(number) for number in range(len(rows))[part]]
    x = keras.tree.map_structure(lambda *each: np.stack(each), *views)
    return _as_floats(examples, x)


def _as_floats(examples: Examples, x: Any) -> Any:
    if not isinstance(examples, ImageSet):
        return x
    return keras.tree.map_structure(lambda x: np.asarray(x, np.float32), x)


def host_batches_in_order(
    examples: Examples, view: View | None, batch_size: int
) -> Iterator[Any] | None:
    """All examples in their order; None if TensorFlow must prepare them."""
    if isinstance(examples, ImageSet):
        if examples.pixels is None or view is None:
            return None
        size = examples.pixels.shape[1:3]
        prepared = tuple(view.prepared_sizes(np.array([size]))[0])
        is_unchanged = prepared == size == view.size
        if not is_unchanged or view.channels != examples.channels:
            return None
    rows = np.arange(len(examples))
    return (
        _as_floats(examples, examples.inputs(rows[start : start + batch_size]))
        for start in range(0, len(examples), batch_size)
    )
