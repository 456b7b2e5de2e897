"""Global batches, split among the replicas of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import keras
import numpy as np

# What `fit` takes in place of data; Keras does not export it.
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
    least `least` rows; Keras takes `at_once` batches, `steps_per_execution`.
    """

    def __init__(
        self,
        batches: DataAdapter,
        strategy: tf.distribute.Strategy,
        is_share: bool = False,
        least: int = 0,
        at_once: int = 1,
    ) -> None:
        self._batches = batches
        self._strategy = strategy
        self._is_share = is_share
        self._least = least
        self._at_once = at_once

    def get_tf_dataset(self) -> tf.distribute.DistributedDataset:
        dataset = self._batches.get_tf_dataset()

        def of_worker(
            context: tf.distribute.InputContext,
        ) -> tf.data.Dataset:
            replicas = context.num_replicas_in_sync
            here = replicas // context.num_input_pipelines
            first, among = context.input_pipeline_id * here, replicas
            if self._is_share:
                first, among = 0, here
            return split(dataset, first, here, among, self._least)

        return _Lazy(
            lambda: self._strategy.distribute_datasets_from_function(of_worker),
            dataset.element_spec,
            self.num_batches,
            self._at_once,
        )

    def get_jax_iterator(self) -> Iterator[Any]:
        """Batches of this process, of which Keras makes arrays of all."""
        for batch in self._batches.get_jax_iterator():
            yield rows_of_process(batch, self._is_share)

    num_batches: Any = property(attrgetter("_batches.num_batches"))
    batch_size: Any = property(attrgetter("_batches.batch_size"))

    def on_epoch_begin(self) -> None:
        self._batches.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._batches.on_epoch_end()


def rows_of_replicas(
    batch: Any, strategy: tf.distribute.Strategy, least: int = 0
) -> Any:
    """Splits one batch among the replicas as `ReplicaBatches` does.

    With a single replica, the batch is returned unchanged. It is an error if a
    replica would get fewer than `least` rows.
    """
    if is_one_of_several():
        return rows_of_process(keras.tree.map_structure(np.asarray, batch))
    among = strategy.num_replicas_in_sync
    if among == 1:
        return batch
    batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
    if least:
        _check_least(tf.nest.flatten(batch)[0], among, least)

    def own(context: tf.distribute.experimental.ValueContext) -> Any:
        number = context.replica_id_in_sync_group
        return tf.nest.map_structure(
            lambda x: _rows(x, number, among, None), batch
        )

    return strategy.experimental_distribute_values_from_function(own)


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
    dataset: tf.data.Dataset, first: int, count: int, among: int, least: int = 0
) -> tf.data.Dataset:
    """Batches for the `count` replicas from `first` on, out of `among`.

    Each batch becomes `count` batches, in the order of the replicas. It is an
    error if one of them would have fewer than `least` rows.
    """

    def parts(*batch: Any) -> tf.data.Dataset:
        batch = batch[0] if len(batch) == 1 else batch
        size = tf.nest.flatten(batch)[0].shape[0]
        # The size of each part, unless the parts differ.
        is_even = size is not None and size % among == 0
        sizes = size // among if is_even else None
        if least:
            _check_least(tf.nest.flatten(batch)[0], among, least)

        def part(number: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda x: _rows(x, first + number, among, sizes), batch
            )

        return tf.data.Dataset.range(count).map(part)

    return dataset.flat_map(tf.autograph.experimental.do_not_convert(parts))


def _rows(
    x: tf.Tensor, number: tf.Tensor, among: int, size: int | None
) -> tf.Tensor:
    total = tf.shape(x, tf.int64)[0]
    start = number * total // among
    rows = x[start : (number + 1) * total // among]
    return tf.ensure_shape(rows, (size, *x.shape[1:]))


def _check_least(x: tf.Tensor, among: int, least: int) -> None:
    tf.debugging.assert_greater_equal(
        tf.shape(x)[0],
        among * least,
        "Batches for a model with gather='none' must have at least "
        f"{among * least} rows, {least} for each of {among} replicas. Use "
        "dataset.batch(…, drop_remainder=True), or gather='replicas'.",
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
        at_once: int,
    ) -> None:
        self._make = make
        self._element_spec = element_spec
        self._count = count
        self._at_once = at_once

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    def __iter__(self) -> Iterator[Any]:
        given = 0
        for batch in self._make():
            yield batch
            given += 1
        # If Keras does not know the number of batches, it asks for more, and
        # accepts only this error, unless it already has a batch to train on.
        if self._count is None and given % self._at_once == 0:
            raise tf.errors.OutOfRangeError(None, None, "There are no more.")
