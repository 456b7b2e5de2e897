"""FrozenBatchNormalization: frozen statistics with a trainable scale."""

from typing import Any

import keras

from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


@register
class FrozenBatchNormalization(keras.layers.BatchNormalization):
    """`BatchNormalization` that always uses its moving statistics.

    Metric learning papers call this frozen batch normalization: the running
    mean and variance are fixed, while gamma and beta are trained.
    (`trainable=False` on the Keras layer freezes gamma and beta as well.)

    Args:
        **kwargs: As for `keras.layers.BatchNormalization`.

    Call arguments:
        inputs: Tensor of any rank, normalized along `axis`.
        training: Ignored.

    Returns:
        A tensor of the shape of `inputs`.
    """

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Any = None
    ) -> Tensor:
        return super().call(inputs, training=False, mask=mask)
