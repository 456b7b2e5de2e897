"""Training: all that a recipe is fitted with."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras

from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.data import DataSplits, Sampler
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.tensorflow import tf


@dataclass(frozen=True)
class Training:
    """A model, and what it is fitted with.

    Attributes:
        model: The compiled model.
        sampler: The sampler of the training examples.
        splits: The data: of what is frozen its features.
        batches: The training batches.
        callbacks: The callbacks that the method and its batches need.
        validation: What measures held-out classes, if there are any.
        monitor: The metric of these that chooses the best epoch.
    """

    model: MetricModel
    sampler: Sampler
    splits: DataSplits
    batches: tf.data.Dataset
    callbacks: list[keras.callbacks.Callback]
    validation: RetrievalEvaluation | None
    monitor: str

    def fit(
        self,
        epochs: int,
        callbacks: Sequence[keras.callbacks.Callback],
        verbose: int | str,
    ) -> None:
        """Fits the model; `callbacks` come after the training's own."""
        validation = [] if self.validation is None else [self.validation]
        self.model.fit(
            self.batches,
            epochs=epochs,
            callbacks=[*self.callbacks, *validation, *callbacks],
            verbose=verbose,
        )
