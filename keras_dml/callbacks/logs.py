"""Callbacks that log: exact retrieval metrics, and the learning rate."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import keras
from annotated_types import Ge, Le

from keras_dml.data import Examples
from keras_dml.data.examples import any_labels_of
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.embedding._embed import source_of
from keras_dml.evaluation import Protocol, evaluate
from keras_dml.evaluation._evaluate import check_evaluation
from keras_dml.evaluation.inputs import ProtocolName
from keras_dml.evaluation.label_sets import RelevanceName
from keras_dml.evaluation.metrics import Wanted
from keras_dml.evaluation.ranks.dense import DistanceFunction
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.evaluation.reranking.base import Kind
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Count

EVALUATED = (
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
"""Arguments of `RetrievalEvaluation` that it hands on to `evaluate`."""


class RetrievalEvaluation(keras.callbacks.Callback):
    """Measures retrieval on held-out examples and logs it.

    The metrics appear in the logs as `val_recall@1`, `val_map@r` and so
    on, where `ModelCheckpoint`, `EarlyStopping` and `CSVLogger` find them
    if they come later in the list of callbacks. For model selection give
    it examples of classes held out of *training*, never test classes.

    Who may find whom is checked at once, not after the first epoch; of a
    `tf.data.Dataset` only its kind, as it is not read before.

    Args:
        images: The examples to search among, each in turn the query: an
            `ImageSet`, `ArraySet` or other `Examples`, with labels; arrays
            `(x, y)`; or a finite `tf.data.Dataset` of (x, y).
        every: Epochs between measurements; the last epoch always counts.
            In epochs without one, the last values are repeated.
        metrics: Metrics of `evaluate`, by name or as functions.
        prefix: What the names in the logs start with.
        batch_size: Examples embedded at a time.
        labels, gallery, gallery_labels, protocol, exclude, distance,
            relevance, levels, prefixes, parts, rerank, memory: As for
            `evaluate`.

    Attributes:
        seconds: Time spent measuring so far.

    Raises:
        ValueError: If `images` is none of these or has no labels, `every`
            is not a positive integer, a metric or distance is unknown, or
            the protocol does not fit the examples or leaves no query a
            relevant one.
    """

    def __init__(
        self,
        images: Any,
        every: Count = 1,
        metrics: Wanted | Sequence[Wanted] = ("recall@1", "map@r"),
        prefix: str = "val_",
        batch_size: int = 256,
        *,
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
        self.every = check_count("RetrievalEvaluation", "every", every)
        self.metrics = metrics
        self.prefix = prefix
        self.batch_size = batch_size
        self.seconds = 0.0
        self._last: dict[str, float] = {}
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
        self._names = check_evaluation(
            "RetrievalEvaluation", self.images, **self._options
        )

    @property
    def logged_names(self) -> frozenset[str] | None:
        """Names in the logs; None if they are not known before the first.

        Those of a `tf.data.Dataset` may depend on its labels.
        """
        if self._names is None:
            return None
        return frozenset(f"{self.prefix}{name}" for name in self._names)

    @property
    def _options(self) -> dict[str, Any]:
        """Arguments that `evaluate` has by the same name."""
        return {name: getattr(self, name) for name in EVALUATED}

    def on_train_begin(self, logs: Any = None) -> None:
        output = getattr(self.model, "output", None)  # Where it is known.
        dim = getattr(output, "shape", (None,))[-1]
        if dim is not None and max(self.prefixes or (0,)) > dim:
            raise ValueError(
                "`prefixes` of RetrievalEvaluation must be at most the "
                f"dimensions of the embeddings, {dim}. Received: prefixes="
                f"{tuple(self.prefixes or ())}."
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        is_last = epoch + 1 == self.params["epochs"]
        if is_last or epoch % self.every == self.every - 1 or not self._last:
            self._measure()
        if logs is not None:
            logs.update(self._last)

    def get_state(self) -> dict[str, Any]:
        """What it has seen of a training; see `Resume`."""
        return {"last": self._last, "seconds": self.seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self._last = state["last"]
        self.seconds = state["seconds"]

    def _measure(self) -> None:
        start = time.perf_counter()
        results = done_by_chief(
            lambda: dict(
                evaluate(
                    self.model,
                    self.images,
                    batch_size=self.batch_size,
                    **self._options,
                )
            ),
            strategy_of(self.model),
        )
        self._last = {
            f"{self.prefix}{name}": value for name, value in results.items()
        }
        self.seconds += time.perf_counter() - start


class LearningRateMonitor(keras.callbacks.Callback):
    """Logs as `learning_rate` the rate that each epoch starts with.

    Rate multipliers are not in it. Callbacks that read the logs, such as
    `CSVLogger`, come later in the list of callbacks.
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
        """What it has seen of a training; see `Resume`."""
        return {"rate": self._rate}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self._rate = state["rate"]
