"""MomentumEncoder: a running average of a backbone and a head."""

from typing import Any

import keras
from keras import ops

from keras_dml.model.features import head_outputs
from keras_dml.model.head import Head
from keras_dml.utils.types import Tensor, Tensors


class MomentumEncoder(keras.layers.Layer):
    """A copy of backbone and head that follows them slowly.

    After every step, the parameters change as φ* ← μ φ* + (1 − μ) φ. The copy
    always runs in inference mode, passes no gradient, is saved with the model,
    and is not exported.

    Args:
        backbone: The backbone to follow, built.
        head: The head to follow, built.
        ema_momentum: μ, in [0, 1].
        copy_statistics: Whether to also copy weights that gradients do not
            train, namely the moving statistics of batch normalization, without
            averaging.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        images: (B, H, W, C), or features of a `data.FeatureSet`.

    Returns:
        The outputs of the head, with "momentum_" before each name.

    Raises:
        ValueError: If `ema_momentum` is out of range.

    Reference:
        He et al., "Momentum Contrast for Unsupervised Visual
        Representation Learning", CVPR 2020, Eq. 2.
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: Head,
        ema_momentum: float,
        copy_statistics: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= ema_momentum <= 1:
            raise ValueError(
                "`ema_momentum` of MetricModel must lie in [0, 1]. Received: "
                f"ema_momentum={ema_momentum!r}."
            )
        self.ema_momentum = ema_momentum
        self.copy_statistics = copy_statistics
        self.backbone = keras.models.clone_model(backbone)
        self.backbone.set_weights(backbone.get_weights())
        self.head = type(head).from_config(head.get_config())
        if not self.head.built:
            self.head.build(backbone.output_shape)
        self.head.set_weights(head.get_weights())
        self.trainable = False
        self.built = True

    def call(self, images: Tensor) -> Tensors:
        outputs = head_outputs(self.backbone, self.head, images)
        return {
            f"momentum_{name}": ops.stop_gradient(value)
            for name, value in outputs.items()
        }

    def update(self, backbone: keras.Model, head: Head) -> None:
        """Moves the copy one step towards the backbone and the head."""
        for copy, model in ((self.backbone, backbone), (self.head, head)):
            for average, new in zip(copy.weights, model.weights, strict=True):
                if new.trainable:
                    # This form leaves equal weights exactly equal.
                    step = (1 - self.ema_momentum) * (new - average)
                    average.assign_add(step)
                elif self.copy_statistics:
                    average.assign(new)
