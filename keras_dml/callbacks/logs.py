"""Callbacks that log: exact retrieval metrics, and the learning rate."""

import time
from typing import Any

import keras

from keras_dml.data import Examples
from keras_dml.data.examples import labels_of
from keras_dml.evaluation import evaluate
from keras_dml.evaluation.embedding import source_of
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Count


class RetrievalEvaluation(keras.callbacks.Callback):
    """Measures retrieval on held-out examples and logs it.

    The metrics appear in the logs as `val_recall@1`, `val_map@r` and so
    on, where `ModelCheckpoint`, `EarlyStopping` and `CSVLogger` find them
    if they come later in the list of callbacks. For model selection give
    it images of classes held out of *training*, never test classes.

    Args:
        images: The examples to search among, each in turn the query: an
            `ImageSet`, `ArraySet` or other `Examples`, with labels; arrays
            `(x, y)`; or a finite `tf.data.Dataset` of (x, y).
        every: Epochs between measurements; the last epoch always counts.
            In epochs without one, the last values are repeated.
        metrics: Metrics of `keras_dml.evaluation.evaluate`.
        prefix: What the names in the logs start with.
        batch_size: Images embedded at a time.

    Attributes:
        seconds: Time spent measuring so far.

    Raises:
        ValueError: If `images` is none of these or has no labels, or if
            `every` is not a positive integer.
    """

    def __init__(
        self,
        images: Any,
        every: Count = 1,
        metrics: tuple[str, ...] = ("recall@1", "map@r"),
        prefix: str = "val_",
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        self.images = source_of(images, "images", "RetrievalEvaluation")
        if isinstance(self.images, Examples):
            labels_of(self.images, "images.labels", "RetrievalEvaluation")
        self.every = check_count("RetrievalEvaluation", "every", every)
        self.metrics = tuple(metrics)
        self.prefix = prefix
        self.batch_size = batch_size
        self.seconds = 0.0
        self._last: dict[str, float] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        is_last = epoch + 1 == self.params["epochs"]
        if is_last or epoch % self.every == self.every - 1 or not self._last:
            self._measure()
        if logs is not None:
            logs.update(self._last)

    def _measure(self) -> None:
        start = time.perf_counter()
        results = evaluate(
            self.model,
            self.images,
            metrics=self.metrics,
            batch_size=self.batch_size,
        )
        self._last = {
            f"{self.prefix}{name}": results[name] for name in self.metrics
        }
        self.seconds += time.perf_counter() - start


class LearningRateMonitor(keras.callbacks.Callback):
    """Logs as `learning_rate` the rate that each epoch starts with.

    Rate multipliers are not in it. Callbacks that read the logs, such as
    `CSVLogger`, come later in the list of callbacks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rate = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        rate = self.model.optimizer.learning_rate
        self._rate = float(keras.ops.convert_to_numpy(rate))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["learning_rate"] = self._rate
