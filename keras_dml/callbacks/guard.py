"""Guard: how far a network may move from its pretrained start."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_dml.callbacks.logs import RetrievalEvaluation
from keras_dml.data import Examples
from keras_dml.layers import FrozenBatchNormalization
from keras_dml.model.embedding_model import backbone_features
from keras_dml.model.head_start import example_batches
from keras_dml.utils.types import FloatArray

logger = logging.getLogger(__name__)

_MAX_IMAGES = 1024


class Guard(keras.callbacks.Callback):
    r"""Goes back toward the start as far as held-out classes demand.

    Fine-tuning on few classes harms what a pretrained network knows of others.
    When training ends, the weights of network and head are interpolated between
    those before the first epoch and the last ones,

    $$
    \theta(\alpha) = (1 - \alpha) \, \theta_{start} + \alpha \, \theta_{end} ,
    $$

    with the share α whose monitored value on classes held out of training is
    largest: of 0 and 1, which are measured anyway, of ¼, ½ and ¾, and of the
    two eighths beside the best of these. The loss, with its proxies, stays as
    it is. Statistics of batch normalization that was trained are computed
    again for each share, from images of the training set.

    Use it where head and network start from something that is worth keeping,
    that is, with a pretrained network and a head that starts from a projection
    of its features; see `head_init` of `MetricModel`.

    Args:
        validation: The evaluation of held-out classes, with `start=True`,
            which must come before this callback.
        images: Training examples, of which 1,024 at random give the statistics
            of batch normalization.
        monitor: The entry of the logs to maximize.

    Attributes:
        values: The monitored value at the start, and of each share that gains
            more than one standard error; see `beats_start` of `validation`.
        share: The share α that the model has in the end; None while training.

    Raises:
        ValueError: If `validation` does not measure the start.

    Deviations:
        - The paper interpolates classifiers on images of the training classes'
          own distribution, and recommends ½ where nothing is held out.

    Reference:
        Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022,
        https://arxiv.org/abs/2109.01903 (WiSE-FT); Izmailov et al., "Averaging
        Weights Leads to Wider Optima and Better Generalization", UAI 2018, for
        the statistics.
    """

    def __init__(
        self,
        validation: RetrievalEvaluation,
        images: Examples,
        monitor: str = "val_map@r",
    ) -> None:
        super().__init__()
        if not validation.start:
            raise ValueError(
                "`validation` of Guard must measure the start, to which it may "
                "return. Received: start=False. Use "
                "RetrievalEvaluation(…, start=True)."
            )
        self.validation = validation
        self.images = images
        self.monitor = monitor
        self.values: dict[float, float] = {}
        self.share: float | None = None
        self._start: list[FloatArray] = []
        self._end_value: float | None = None
        self._end_gains = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.values, self.share, self._start = {}, None, []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._start:
            self._start = self._weights()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._end_value = (logs or {}).get(self.monitor)
        self._end_gains = self.validation.beats_start(self.monitor)

    def on_train_end(self, logs: Any = None) -> None:
        start = (self.validation.start_values or {}).get(self.monitor)
        if start is None or self._end_value is None:
            return
        end = self._weights()
        self.values = {0.0: start}
        if self._end_gains:
            self.values[1.0] = self._end_value
        self._try((0.25, 0.5, 0.75), end)
        best = self._best()
        self._try((best - 0.125, best + 0.125), end)
        self.share = self._best()
        self._move(self.share, end)
        logger.info(
            "The guard keeps %g of the way from the start to the last epoch: "
            "%s is %.4f, %.4f at the start and %.4f at the end.",
            self.share, self.monitor, self.values[self.share], start,
            self._end_value,
        )  # fmt: skip

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`, with the weights."""
        return {
            "start": self._start,
            "end": [self._end_value, self._end_gains],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._start = state["start"]
        self._end_value, self._end_gains = state["end"]

    @property
    def _variables(self) -> list[keras.Variable]:
        model = self.model
        variables: list[keras.Variable] = []
        for part in (model.backbone, model.head):
            variables += part.trainable_variables
        return variables

    def _weights(self) -> list[FloatArray]:
        return [keras.ops.convert_to_numpy(v) for v in self._variables]

    def _best(self) -> float:
        """The share with the largest value; of equal ones the smallest."""
        return max(sorted(self.values), key=self.values.__getitem__)

    def _try(self, shares: Iterable[float], end: list[FloatArray]) -> None:
        """Measures shares, and keeps the values of those that gain."""
        for share in shares:
            if 0 < share < 1:
                self._move(share, end)
                value = self.validation.measure()[self.monitor]
                if self.validation.beats_start(self.monitor):
                    self.values[share] = value

    def _move(self, share: float, end: list[FloatArray]) -> None:
        rows = zip(self._variables, self._start, end, strict=True)
        for variable, first, last in rows:
            variable.assign((1 - share) * first + share * last)
        self._compute_statistics()

    def _compute_statistics(self) -> None:
        """Averages the statistics of batches, at the present weights."""
        backbone = self.model.backbone
        norms = [
            x
            for x in backbone._flatten_layers()
            if isinstance(x, keras.layers.BatchNormalization)
            and not isinstance(x, FrozenBatchNormalization)
            and x.trainable
        ]
        if not norms:
            return
        count = min(len(self.images), _MAX_IMAGES)
        rows = np.random.default_rng(0).permutation(len(self.images))[:count]
        momenta = [x.momentum for x in norms]
        batches = example_batches(self.model, self.images.select(rows))
        for number, (inputs, _) in enumerate(batches):
            for norm in norms:
                norm.momentum = number / (number + 1)
            backbone_features(backbone, inputs, training=True)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
