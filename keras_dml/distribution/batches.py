"""Global batches, split among the replicas of a strategy."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

# What `fit` takes in place of data; Keras does not export it.
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from keras_dml.data.planned import sampler_of, share_of
from keras_dml.distribution.workers import this_worker


class ReplicaBatches(DataAdapter):
    """Global batches of a dataset as `keras.Model.fit` takes them.

    Replica r of R has the r-th of R stretches of rows, as even as the batch
    allows. Unlike what a strategy makes of a dataset by itself, the order of
    rows over the replicas is that of the batch, whatever R is, and nothing
    is read before the first batch of an epoch is asked for: what callbacks
    change at its beginning holds for it.

    Args:
        dataset: Batches of all replicas; or of this worker's.
        strategy: What the replicas belong to.
        is_share: Whether the batches are those of this worker alone.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        is_share: bool = False,
    ) -> None:
        self._dataset = dataset
        self._strategy = strategy
        self._is_share = is_share

    def get_tf_dataset(self) -> tf.distribute.DistributedDataset:
        return _Lazy(self._distributed, self._dataset.element_spec)

    @property
    def num_batches(self) -> int | None:
        count = int(self._dataset.cardinality())
        return count if count >= 0 else None

    @property
    def batch_size(self) -> int | None:
        size: int | None
        size = tf.nest.flatten(self._dataset.element_spec)[0].shape[0]
        return size

    @property
    def has_partial_batch(self) -> bool | None:
        return None

    @property
    def partial_batch_size(self) -> int | None:
        return None

    def _distributed(self) -> tf.distribute.DistributedDataset:
        return self._strategy.distribute_datasets_from_function(self._of_worker)

    def _of_worker(self, context: tf.distribute.InputContext) -> Any:
        replicas = context.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        first, among = context.input_pipeline_id * here, replicas
        if self._is_share:
            first, among = 0, here
        return split(self._dataset, first, here, among)


def share_of_worker(
    x: Any, strategy: tf.distribute.Strategy
) -> tf.data.Dataset | None:
    """This worker's rows of planned batches, of which only these are read.

    Returns:
        None if there is a single worker, or batches that can only be read
        as a whole.

    Raises:
        ValueError: If a sampler plans batches that replicas cannot share
            evenly.
    """
    worker, replicas = this_worker(strategy), strategy.num_replicas_in_sync
    sampler = sampler_of(x) if isinstance(x, tf.data.Dataset) else None
    if replicas > 1 and sampler is not None and sampler.batch_size % replicas:
        raise ValueError(
            "Batches that a sampler plans must have as many rows for each "
            f"replica. Received: {sampler!r} for {replicas} replicas. Use a "
            f"batch size that {replicas} divides."
        )
    if worker.count == 1 or sampler is None:
        return None
    return share_of(x, worker.number, worker.count)


def split(
    dataset: tf.data.Dataset, first: int, count: int, among: int
) -> tf.data.Dataset:
    """Batches of rows for replicas `first` to `first + count` of `among`.

    One batch becomes `count` of them, in the order of the replicas.
    """

    def parts(*batch: Any) -> tf.data.Dataset:
        batch = batch[0] if len(batch) == 1 else batch
        size = tf.nest.flatten(batch)[0].shape[0]
        sizes = None if size is None else _sizes(size, among)

        def part(number: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda x: _rows(x, first + number, among, sizes), batch
            )

        return tf.data.Dataset.range(count).map(part)

    return dataset.flat_map(tf.autograph.experimental.do_not_convert(parts))


def _sizes(size: int, among: int) -> int | None:
    """The rows of each part, if all have the same number."""
    return None if size % among else size // among


def _rows(
    x: tf.Tensor, number: tf.Tensor, among: int, size: int | None
) -> tf.Tensor:
    total = tf.shape(x, tf.int64)[0]
    start = number * total // among
    rows = x[start : (number + 1) * total // among]
    return tf.ensure_shape(rows, (size, *x.shape[1:]))


class _Lazy(tf.distribute.DistributedDataset):
    """A distributed dataset of which an iterator begins when it is asked.

    Keras makes one at the end of every epoch and throws it away at the
    beginning of the next.
    """

    def __init__(
        self, make: Callable[[], Iterable[Any]], element_spec: Any
    ) -> None:
        self._make = make
        self._element_spec = element_spec

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    def __iter__(self) -> Iterator[Any]:
        yield from self._make()
