"""Callbacks that log exact retrieval metrics and the learning rate."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import keras
import numpy as np
from annotated_types import Ge, Le

from keras_dml.data import Examples
from keras_dml.data.examples import any_labels_of
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.embedding.in_memory import source_of
from keras_dml.evaluation import Protocol, evaluate
from keras_dml.evaluation._evaluate import check_evaluation
from keras_dml.evaluation.inputs import ProtocolName
from keras_dml.evaluation.label_sets import RelevanceName
from keras_dml.evaluation.metrics import MetricLike
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.evaluation.ranks.search import DistanceFunction
from keras_dml.evaluation.reranking import Kind
from keras_dml.model.warnings import warn_once
from keras_dml.utils.arguments import Checked
from keras_dml.utils.types import Count

EVALUATE_ARGUMENTS = (
    "metrics",
    "labels",
    "gallery",
    "gallery_labels",
    "protocol",
    "exclude",
    "distance",
    "relevance",
    "levels",
    "prefixes",
    "parts",
    "rerank",
    "memory",
)
"""Arguments that `RetrievalEvaluation` passes to `evaluate`."""


def is_due(epoch: int, every: int, epochs: int) -> bool:
    """Whether an epoch ends a period, or is the last.

    Args:
        epoch: An epoch, from 0.
        every: Number of epochs in a period.
        epochs: Number of epochs of the training.
    """
    return epoch % every == every - 1 or epoch + 1 == epochs


class RetrievalEvaluation(Checked, keras.callbacks.Callback):
    """Measures and logs retrieval on held-out examples.

    The metrics appear in the logs as `val_recall@1`, `val_map@r` and so on.
    `ModelCheckpoint`, `EarlyStopping` and `CSVLogger` can use them if they come
    later in the list of callbacks. For model selection, use examples of classes
    held out from the *training* classes, never test classes.

    The protocol is checked against the examples at once instead of after the
    first epoch. For a `tf.data.Dataset`, which is not read in advance, only its
    type is checked.

    Args:
        images: The examples to search, each of which is the query in turn: an
            `ImageSet`, `ArraySet` or other `Examples` with labels; arrays
            `(x, y)`; or a finite `tf.data.Dataset` or `PyDataset` of (x, y).
        every: Number of epochs between measurements. The first and the last
            epoch of a training are always measured. Other epochs do not log
            the metrics, as with `validation_freq` of `fit`, so the `patience`
            of Keras's callbacks counts measurements. A `ModelCheckpoint` only
            saves after measured epochs in `MetricModel.fit`; with another
            model, use `Checkpoint`, because Keras's callback would then
            overwrite the best model in an epoch without the metric.
        metrics: Metrics of `evaluate`, by name or as functions.
        prefix: Prefix of the names in the logs.
        start: Whether to measure before the first epoch as well, so that
            `beats_start` can tell whether an epoch gained anything.
        batch_size: Number of examples to embed at a time.
        labels, gallery, gallery_labels, protocol, exclude, distance,
            relevance, levels, prefixes, parts, rerank, memory: As for
            `evaluate`.

    Attributes:
        seconds: Time spent measuring so far.
        start_values: The values measured before the first epoch, by the names
            in the logs; None without `start`.

    Raises:
        ValueError: If `images` is of another type or does not have labels,
            `every` is not a positive integer, a metric or distance is unknown,
            or the protocol does not fit the examples or leaves every query
            without a relevant example.

    Also known as:
        - TF Similarity: `EvalCallback`.
    """

    measures_embeddings = True

    def __init__(
        self,
        images: Any,
        every: Count = 1,
        metrics: MetricLike | Sequence[MetricLike] = ("recall@1", "map@r"),
        prefix: str = "val_",
        batch_size: int = 256,
        *,
        start: bool = False,
        labels: Any = None,
        gallery: Any = None,
        gallery_labels: Any = None,
        protocol: ProtocolName | Protocol | Sequence[Protocol] | None = None,
        exclude: Any = None,
        distance: DistanceName | DistanceFunction = "cosine",
        relevance: RelevanceName = "any",
        levels: Sequence[str] | None = None,
        prefixes: Sequence[Count] | None = None,
        parts: Annotated[int, Ge(2), Le(1000)] | None = None,
        rerank: Kind | Sequence[Kind] | None = None,
        memory: int | str = "512MB",
    ) -> None:
        super().__init__()
        self.images = source_of(images, "images", "RetrievalEvaluation")
        if isinstance(self.images, Examples) and labels is None:
            any_labels_of(self.images, "images.labels", "RetrievalEvaluation")
        self.every = every
        self.metrics = metrics
        self.prefix = prefix
        self.batch_size = batch_size
        self.start = start
        self.start_values: dict[str, float] | None = None
        self._start_by_class: dict[str, list[float]] = {}
        self._by_class: dict[str, list[float]] = {}
        self.seconds = 0.0
        self._has_measured = False
        self.labels = labels
        self.gallery = gallery
        self.gallery_labels = gallery_labels
        self.protocol = protocol
        self.exclude = exclude
        self.distance = distance
        self.relevance = relevance
        self.levels = levels
        self.prefixes = prefixes
        self.parts = parts
        self.rerank = rerank
        self.memory = memory
        self._messages: set[str] = set()
        with warn_once(self._messages):
            self._names = check_evaluation(
                "RetrievalEvaluation", self.images, **self._options
            )

    @property
    def logged_names(self) -> frozenset[str] | None:
        """Names in the logs; None if they are only known after measuring.

        For a `tf.data.Dataset`, they may depend on its labels.
        """
        if self._names is None:
            return None
        return frozenset(f"{self.prefix}{name}" for name in self._names)

    @property
    def _options(self) -> dict[str, Any]:
        """Arguments that `evaluate` has under the same names."""
        return {name: getattr(self, name) for name in EVALUATE_ARGUMENTS}

    def on_train_begin(self, logs: Any = None) -> None:
        self._has_measured = False
        self.start_values = None
        output = getattr(self.model, "output", None)  # If it is known.
        dim = getattr(output, "shape", (None,))[-1]
        if dim is not None and max(self.prefixes or (0,)) > dim:
            raise ValueError(
                "`prefixes` of RetrievalEvaluation must be at most the "
                f"dimension of the embeddings, {dim}. Received: prefixes="
                f"{tuple(self.prefixes or ())}."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.start and self.start_values is None and not self._has_measured:
            self.start_values = self.measure()
            self._start_by_class = self._by_class

    def beats_start(self, name: str) -> bool:
        """Whether the last epoch measured is better than the start.

        It is if the mean of a metric's gains over classes is above one standard
        error of that mean. A metric without values for single queries only has
        to be larger.

        Args:
            name: The name in the logs.
        """
        metric = name.removeprefix(self.prefix)
        if self.start_values is None or metric not in self._by_class:
            return True
        gains = np.subtract(
            self._by_class[metric], self._start_by_class[metric]
        )
        if len(gains) < 2:
            return bool(gains.mean() > 0)
        return bool(gains.mean() > gains.std(ddof=1) / len(gains) ** 0.5)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        is_first, self._has_measured = not self._has_measured, True
        if not is_first and not is_due(
            epoch, self.every, self.params["epochs"]
        ):
            return
        measured = self.measure()
        if logs is not None:
            logs.update(measured)

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {
            "has_measured": self._has_measured,
            "seconds": self.seconds,
            "start": (self.start_values, self._start_by_class),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._has_measured = state["has_measured"]
        self.seconds = state["seconds"]
        self.start_values, self._start_by_class = state["start"]

    def measure(self) -> dict[str, float]:
        """Measures the model; returns the entries of the logs."""
        start = time.perf_counter()
        with warn_once(self._messages):
            values, self._by_class = done_by_chief(
                self._values_and_classes, strategy_of(self.model)
            )
        self.seconds += time.perf_counter() - start
        return {f"{self.prefix}{name}": value for name, value in values.items()}

    def _values_and_classes(
        self,
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """The metrics, and means by class of those with values per query."""
        results = evaluate(
            self.model,
            self.images,
            batch_size=self.batch_size,
            **self._options,
        )
        by_class = {}
        if self.start:
            by_class = {
                name: list(results.per_class(name).values())
                for name in results.per_query
            }
        return dict(results), by_class


class LearningRateMonitor(keras.callbacks.Callback):
    """Logs the learning rate at the start of each epoch as `learning_rate`.

    It does not include rate multipliers. Callbacks that read the logs, such as
    `CSVLogger`, must come later in the list of callbacks.
    """

    logged_names = frozenset({"learning_rate"})

    def __init__(self) -> None:
        super().__init__()
        self._rate = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        rate = self.model.optimizer.learning_rate
        self._rate = float(keras.ops.convert_to_numpy(rate))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["learning_rate"] = self._rate

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {"rate": self._rate}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._rate = state["rate"]
