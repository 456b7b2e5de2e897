"""Collapse: all embeddings are equal, so nothing can be learned or found."""

import logging
import math
from typing import Any

import keras
import numpy as np

from keras_dml.model.batch_checks import BatchChecks

logger = logging.getLogger(__name__)

_STUCK = 1e-4
"""Relative change of a loss from one epoch to the next that is suspicious."""

_EQUAL = 1e-5
"""Difference of unit vectors up to which they are equal."""


class NoticeCollapse(keras.callbacks.Callback):
    """Tells, once, that training has collapsed.

    If the loss is the same in two epochs, as a triplet loss that stays at its
    margin, some training examples are embedded.

    Args:
        model: The model that is trained.
        checks: What has seen the batches.
    """

    def __init__(self, model: keras.Model, checks: BatchChecks) -> None:
        super().__init__()
        self.set_model(model)
        self.checks = checks
        self._loss = math.nan
        self._has_told = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        loss, before = (logs or {}).get("loss", math.nan), self._loss
        self._loss = loss
        is_stuck = abs(loss - before) <= _STUCK * abs(before)
        if self._has_told or not is_stuck or self.checks.sample is None:
            return
        found = self.model(self.checks.sample, training=False)
        embeddings = keras.ops.convert_to_numpy(found)
        if len(embeddings) < 2 or np.ptp(embeddings, axis=0).max() > _EQUAL:
            return
        self._has_told = True
        logger.warning(
            "The model has collapsed: all of %d training examples have %s "
            "embedding, and the loss stays at %.4g. Check whether its weights "
            "are finite, and use a lower learning rate or an easier mining.",
            len(embeddings),
            "the same" if embeddings.any() else "a zero",
            loss,
        )
