"""LearningRateMonitor: the learning rate among the logs."""

from typing import Any

import keras


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
