"""Global batches, split among the replicas of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import keras
import numpy as np

# `fit` takes such adapters in place of data; Keras does not export them.
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from keras_dml.data.host import FitBatches
from keras_dml.data.planned import sampler_of, share_of
from keras_dml.distribution.workers import (
    is_one_of_several,
    rows_of_process,
    this_worker,
)
from keras_dml.utils.tensorflow import tf


class ReplicaBatches(FitBatches):
    """Global batches for `keras.Model.fit`, split among the replicas.

    Each batch is cut into R contiguous blocks of rows, as equal in size as
    possible, and replica r takes the r-th. If a batch has fewer than R rows,
    some replicas get none. When a strategy distributes a dataset itself, the
    order of rows may depend on R, and rows are read ahead. Here, the rows of
    the replicas together are in the order of the batch for every R, and nothing
    is read before the first batch of an epoch is requested, so changes that
    callbacks make at the beginning of an epoch take effect in it.

    If `is_share`, the batches are for this worker alone. Every replica gets at
    least `min_rows` rows.
    """

    def __init__(
        self,
        batches: DataAdapter,
        strategy: tf.distribute.Strategy,
        is_share: bool = False,
        min_rows: int = 0,
        steps_per_execution: int = 1,
    ) -> None:
        self._batches = batches
        self._strategy = strategy
        self._is_share = is_share
        self._min_rows = min_rows
        self._steps_per_execution = steps_per_execution

    def get_tf_dataset(self) -> tf.distribute.DistributedDataset:
        dataset = self._batches.get_tf_dataset()

        def of_worker(
            context: tf.distribute.InputContext,
        ) -> tf.data.Dataset:
            num_replicas = context.num_replicas_in_sync
            count = num_replicas // context.num_input_pipelines
            start = context.input_pipeline_id * count
            if self._is_share:
                start, num_replicas = 0, count
            replicas = range(start, start + count)
            return split(dataset, replicas, num_replicas, self._min_rows)

        return _Lazy(
            lambda: self._strategy.distribute_datasets_from_function(of_worker),
            dataset.element_spec,
            self.num_batches,
            self._steps_per_execution,
        )

    def get_jax_iterator(self) -> Iterator[Any]:
        """The rows of this process; Keras assembles global arrays of them."""
        for batch in self._batches.get_jax_iterator():
            yield rows_of_process(batch, self._is_share)

    num_batches: Any = property(attrgetter("_batches.num_batches"))
    batch_size: Any = property(attrgetter("_batches.batch_size"))

    def on_epoch_begin(self) -> None:
        self._batches.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._batches.on_epoch_end()


def rows_of_replicas(
    batch: Any, strategy: tf.distribute.Strategy, min_rows: int = 0
) -> Any:
    """Splits one batch among the replicas as `ReplicaBatches` does.

    With a single replica, the batch is returned unchanged. It is an error if a
    replica would get fewer than `min_rows` rows.
    """
    if is_one_of_several():
        return rows_of_process(keras.tree.map_structure(np.asarray, batch))
    num_replicas = strategy.num_replicas_in_sync
    if num_replicas == 1:
        return batch
    batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
    if min_rows:
        _check_min_rows(tf.nest.flatten(batch)[0], num_replicas, min_rows)

    def local_rows(context: tf.distribute.experimental.ValueContext) -> Any:
        replica = context.replica_id_in_sync_group
        return tf.nest.map_structure(
            lambda x: _rows(x, replica, num_replicas, None), batch
        )

    return strategy.experimental_distribute_values_from_function(local_rows)


def share_of_worker(
    x: Any, strategy: tf.distribute.Strategy
) -> tf.data.Dataset | None:
    """This worker's rows of planned batches; no other rows are read.

    None if it is the only one, or if batches can only be read as a whole.
    """
    worker = this_worker(strategy)
    sampler = sampler_of(x)
    if worker.count == 1 or sampler is None:
        return None
    if sampler.batch_size % worker.count:
        raise ValueError(
            "Batches of a sampler must have the same number of rows for every "
            f"worker. Received: {sampler!r} for {worker.count} workers. Use "
            f"a batch size that is a multiple of {worker.count}."
        )
    return share_of(x, worker.number, worker.count)


def split(
    dataset: tf.data.Dataset, replicas: range, count: int, min_rows: int = 0
) -> tf.data.Dataset:
    """Batches for some `replicas`, of `count` in all.

    Each batch becomes one batch for each of them, in their order. It is an
    error if one of these would have fewer than `min_rows` rows.
    """

    def parts(*batch: Any) -> tf.data.Dataset:
        batch = batch[0] if len(batch) == 1 else batch
        size = tf.nest.flatten(batch)[0].shape[0]
        # Parts have a static size if they are equal.
        is_even = size is not None and size % count == 0
        part_size = size // count if is_even else None
        if min_rows:
            _check_min_rows(tf.nest.flatten(batch)[0], count, min_rows)

        def part(replica: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda x: _rows(x, replica, count, part_size), batch
            )

        return tf.data.Dataset.range(replicas.start, replicas.stop).map(part)

    return dataset.flat_map(tf.autograph.experimental.do_not_convert(parts))


def _rows(
    x: tf.Tensor, replica: tf.Tensor, num_replicas: int, size: int | None
) -> tf.Tensor:
    total = tf.shape(x, tf.int64)[0]
    start = replica * total // num_replicas
    rows = x[start : (replica + 1) * total // num_replicas]
    return tf.ensure_shape(rows, (size, *x.shape[1:]))


def _check_min_rows(x: tf.Tensor, num_replicas: int, min_rows: int) -> None:
    tf.debugging.assert_greater_equal(
        tf.shape(x)[0],
        num_replicas * min_rows,
        "Batches for a model with gather='none' must have at least "
        f"{num_replicas * min_rows} rows, {min_rows} for each of "
        f"{num_replicas} replicas. Use dataset.batch(…, drop_remainder=True), "
        "or gather='replicas'.",
    )


_Distributed: Any = (
    tf.distribute.DistributedDataset
    if keras.backend.backend() == "tensorflow"
    else object
)


class _Lazy(_Distributed):
    """A distributed dataset that is only opened when it is first read.

    Keras creates an iterator at the end of every epoch, and discards it at the
    beginning of the next.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[Any]],
        element_spec: Any,
        count: int | None,
        steps_per_execution: int,
    ) -> None:
        self._make = make
        self._element_spec = element_spec
        self._count = count
        self._steps_per_execution = steps_per_execution

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    def __iter__(self) -> Iterator[Any]:
        num_batches = 0
        for batch in self._make():
            yield batch
            num_batches += 1
        # If Keras does not know the number of batches, it asks for more, and
        # accepts only this error, unless it already has a batch to train on.
        if self._count is None and num_batches % self._steps_per_execution == 0:
            raise tf.errors.OutOfRangeError(None, None, "There are no more.")
