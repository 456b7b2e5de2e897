"""Streams: class-balanced batches of data that are too large to store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_dml.data.arrayset import check_finite
from keras_dml.data.as_examples import DatasetReader
from keras_dml.utils.arguments import check_count, checked
from keras_dml.utils.tensorflow import is_dataset, tf
from keras_dml.utils.types import Count, NonNegativeInt

_OWNER = "balanced"

_PATIENCE = 100
"""Number of buffers without a batch after which reading stops."""


class BalancedStream:
    """Class-balanced batches of a stream; see `balanced`.

    Attributes:
        dataset: The batches, for `fit`. Each iteration is an epoch.
        examples_read: Number of examples read so far.
        examples_used: Number of examples that were in a batch.
        examples_dropped: Number of examples that were replaced by others. The
            rest is in the buffer.
    """

    def __init__(
        self,
        reader: DatasetReader,
        classes_per_batch: int,
        images_per_class: int,
        buffer: int,
        steps: int | None,
        seed: int,
    ) -> None:
        self._reader = reader
        self._classes, self._images = classes_per_batch, images_per_class
        self._size, self._steps = buffer, steps
        self._rng = np.random.default_rng(seed)
        # (x, index) of what waits, by class, the oldest first.
        self._waiting: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        self._ready: set[int] = set()  # Classes that fill their share.
        self._count = 0
        self._is_over = False  # An epoch's pass over the stream.
        self._source: Iterator[tuple[Any, int, int]] | None = None
        self._met: set[int] = set()
        self._drawn: Counter[int] = Counter()
        self.examples_read = self.examples_used = self.examples_dropped = 0
        self.dataset = self._as_dataset()

    @property
    def classes_met(self) -> int:
        """Number of classes of the examples that were read."""
        return len(self._met)

    @property
    def classes_seen(self) -> int:
        """Number of classes that were in a batch."""
        return len(self._drawn)

    @property
    def share_of_classes(self) -> float:
        """Share of the classes met that were in a batch, from 0 to 1."""
        return len(self._drawn) / len(self._met) if self._met else 0.0

    def __repr__(self) -> str:
        return (
            f"BalancedStream({self.classes_seen:,} of {self.classes_met:,} "
            f"classes seen; {self.examples_used:,} of {self.examples_read:,} "
            f"examples used, {self.examples_dropped:,} dropped)"
        )

    def _as_dataset(self) -> tf.data.Dataset:
        batch = self._classes * self._images
        x = tf.nest.map_structure(
            lambda spec: tf.TensorSpec((batch, *spec.shape[1:]), spec.dtype),
            self._reader.spec,
        )
        y = tf.TensorSpec((batch,), tf.int64)
        dataset = tf.data.Dataset.from_generator(
            self._epoch, output_signature=(x, {"label": y, "index": y})
        )
        if self._steps is not None:
            known = tf.data.experimental.assert_cardinality(self._steps)
            dataset = dataset.apply(known)
        return dataset.prefetch(1)

    def _epoch(self) -> Iterator[Any]:
        """Batches of one epoch: some steps, or all batches of the stream."""
        done = 0
        self._is_over = False
        while done != self._steps:
            batch = self._next_batch()
            if batch is None:  # One pass over the stream is the epoch.
                self._forget()
                if done:
                    return
                raise self._no_batch()
            yield batch
            done += 1

    def _next_batch(self) -> Any:
        """The next batch; None where the stream ends, if an epoch may."""
        read, ended = 0, 0
        while self._count < self._size or not self._is_ready:
            example = None if self._is_over else self._read()
            if example is None and self._steps is None:
                self._is_over = True
                if self._is_ready:
                    break
                return None
            if example is None:
                ended += 1
                if ended > 1:  # A whole pass, and still no batch.
                    raise self._no_batch()
                continue
            if self._count == self._size:
                self._drop()
            self._keep(*example)
            read += 1
            if read > _PATIENCE * self._size:
                raise self._no_batch()
        return self._drawn_batch()

    @property
    def _is_ready(self) -> bool:
        return len(self._ready) >= self._classes

    def _read(self) -> tuple[Any, int, int] | None:
        """The next example; None at the end, before the stream restarts."""
        if self._source is None:
            self._source = self._examples()
        example = next(self._source, None)
        if example is None:
            self._source = None
        else:
            self.examples_read += 1
        return example

    def _examples(self) -> Iterator[tuple[Any, int, int]]:
        index = 0
        for x, labels in self._reader.pairs():
            flat = tf.nest.map_structure(lambda tensor: tensor.numpy(), x)
            rows = np.arange(index, index + len(labels))
            for array in tf.nest.flatten(flat):
                check_finite(array, "x in `dataset`", rows, _OWNER)
            for row, label in enumerate(labels.reshape(-1).tolist()):
                example = tf.nest.map_structure(lambda a, i=row: a[i], flat)
                yield example, label, index
                index += 1

    def _keep(self, x: Any, label: int, index: int) -> None:
        self._met.add(label)
        waiting = self._waiting[label]
        waiting.append((x, index))
        self._count += 1
        if len(waiting) >= self._images:
            self._ready.add(label)

    def _drop(self) -> None:
        """Makes room: drops the oldest example of the largest class."""
        label = max(self._waiting, key=lambda k: (len(self._waiting[k]), -k))
        if len(self._waiting[label]) <= self._images:
            # None has more than its share: the class that waits longest.
            label = min(self._waiting, key=lambda k: self._waiting[k][0][1])
        self._remove(label, [0])
        self.examples_dropped += 1

    def _remove(self, label: int, places: list[int]) -> list[tuple[Any, int]]:
        waiting = self._waiting[label]
        taken = [waiting[place] for place in places]
        rest = [x for i, x in enumerate(waiting) if i not in set(places)]
        self._count -= len(taken)
        if rest:
            self._waiting[label] = rest
        else:
            del self._waiting[label]
        if len(rest) < self._images:
            self._ready.discard(label)
        return taken

    def _drawn_batch(self) -> Any:
        """A random batch of the classes that were drawn least often."""
        ready = np.array(sorted(self._ready))
        drawn = np.array([self._drawn[label] for label in ready.tolist()])
        order = np.lexsort((self._rng.random(len(ready)), drawn))
        chosen = ready[order[: self._classes]].tolist()
        taken = []
        for label in chosen:
            count = len(self._waiting[label])
            places = self._rng.choice(count, self._images, replace=False)
            taken += self._remove(label, sorted(places.tolist()))
        self._drawn.update(chosen)
        self.examples_used += len(taken)
        x = tf.nest.map_structure(
            lambda *rows: _stacked(rows), *(example for example, _ in taken)
        )
        labels = np.repeat(np.array(chosen, np.int64), self._images)
        index = np.array([index for _, index in taken], np.int64)
        return x, {"label": labels, "index": index}

    def _forget(self) -> None:
        """Empties the buffer, whose examples do not form a batch."""
        self.examples_dropped += self._count
        self._waiting.clear()
        self._ready.clear()
        self._count = 0

    def _no_batch(self) -> ValueError:
        return ValueError(
            f"`dataset` of {_OWNER} must provide {self._classes} classes of "
            f"{self._images} examples among any `buffer` examples. Received: "
            f"{self.classes_met} classes in {self.examples_read:,} examples, "
            f"without such a batch for buffer={self._size}. Use a larger "
            "buffer, or dataset.shuffle(n): streams are often sorted by class."
        )


def _stacked(rows: Sequence[Any]) -> Any:
    # NumPy would cut zeros off the end of strings.
    is_text = isinstance(rows[0], bytes)
    return np.array(rows, object) if is_text else np.stack(rows)


@checked
def balanced(
    dataset: tf.data.Dataset,
    classes_per_batch: Count,
    images_per_class: Count = 4,
    *,
    buffer: Count = 10_000,
    steps_per_epoch: Count | None = None,
    seed: NonNegativeInt = 0,
) -> BalancedStream:
    """Creates class-balanced batches of a stream, using a bounded buffer.

    This is for streams that fit neither in memory nor on disk; for others, use
    `from_dataset` and `ClassBalanced`. First the buffer is filled. Then each
    batch takes P of the classes that have K examples in the buffer, preferring
    those that were drawn least often, and K random examples of each; the same
    number of examples is then read. An example is in at most one batch. If the
    buffer is full without P of these classes, the class with the most examples
    loses its oldest one; if no class has more than K, the oldest example is
    dropped.

    There is no guarantee that every class, or every example, is ever in a
    batch: a class with fewer than K examples in the buffer at any one time is
    not, and the order of the stream matters beyond the length of the buffer.
    Statistics of what was seen are available: `share_of_classes`,
    `classes_seen`, `examples_dropped`. A run cannot be resumed in the middle
    of a stream.

    Two runs with the same stream, buffer and seed have the same batches.

    Args:
        dataset: A dataset of (x, y), where y are integers, batched or not; it
            may be infinite with `steps_per_epoch`.
        classes_per_batch: Number of classes per batch, P.
        images_per_class: Number of examples per class in a batch, K.
        buffer: Number of examples in memory, at least P × K.
        steps_per_epoch: Number of batches per epoch. Each epoch then continues
            the stream where the previous one ended, and restarts it at its
            end. By default an epoch is one pass over the stream.
        seed: Seed of random choices.

    Returns:
        A `BalancedStream`, whose `dataset` is for `fit`: batches (x, y), where
        y is a dict of int64 (P × K,): "label", and "index", the number of the
        example in the stream.

    Raises:
        ValueError: If an argument is not as described, or, when batches are
            read, if the stream does not provide any.

    Example:

    ```python
    stream = balanced(dataset, classes_per_batch=32, images_per_class=4)
    model.fit(stream.dataset, epochs=5)
    print(stream.share_of_classes)
    ```
    """
    check_count(
        _OWNER, "buffer", buffer, least=classes_per_batch * images_per_class
    )
    if not is_dataset(dataset):
        raise ValueError(
            f"`dataset` of {_OWNER} must be a tf.data.Dataset. Received: "
            f"{type(dataset).__name__}. For arrays, use ClassBalanced."
        )
    reader = DatasetReader(
        dataset,
        "dataset",
        _OWNER,
        batch_size=64,
        finite=steps_per_epoch is None,
    )
    if not reader.has_integer_labels:
        raise ValueError(
            f"`dataset` of {_OWNER} must have elements (x, y), where y are "
            f"integers. Received: {dataset.element_spec}. To number strings, "
            "use keras.layers.StringLookup(vocabulary=…)."
        )
    return BalancedStream(
        reader,
        classes_per_batch,
        images_per_class,
        buffer,
        steps_per_epoch,
        seed,
    )
