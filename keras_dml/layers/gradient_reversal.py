"""GradientReversal: the identity, with a reversed gradient."""

from typing import Any

import keras
from keras import ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class GradientReversal(SerializableLayer):
    """Identity in the forward pass; multiplies the gradient by −scale.

    R of DiVA (Eq. 7) and of domain-adversarial training: the layers after it
    are trained to lower a loss, and the layers before it to raise it.

    The inputs are passed on unchanged, in their own dtype, whatever the dtype
    policy. The gradient is multiplied in at least float32 and rounded once.

    Args:
        scale: Factor of the reversed gradient. It is stored in a non-trainable
            weight, so a callback can change it during training:
            `layer.scale_weight.assign(0.5)`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor of any shape and floating dtype.

    Returns:
        `inputs`.

    Raises:
        ValueError: If `scale` is negative.

    Example:

    ```python
    reversed = GradientReversal(scale=0.1)(features)
    domain = keras.layers.Dense(1)(reversed)
    ```

    Reference:
        Ganin and Lempitsky, "Unsupervised Domain Adaptation by
        Backpropagation", ICML 2015.
    """

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        # Autocasting would round the inputs to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        if scale < 0:
            raise ValueError(
                "`scale` of GradientReversal must be at least 0, because the "
                f"layer itself reverses the sign. Received: scale={scale!r}. "
                f"Use scale={-scale!r}."
            )
        self.scale = scale
        self.supports_masking = True
        # No shape depends on the inputs.
        self.scale_weight = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(scale),
            dtype="float32",
            trainable=False,
            autocast=False,
            name="scale",
        )
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return _reverse(inputs, ops.copy(self.scale_weight))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)


@ops.custom_gradient
def _reverse(inputs: Tensor, scale: Tensor) -> Tensor:
    def gradient(
        *upstream_of: Tensor, upstream: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # Backends differ in how they pass it.
        if upstream is None:
            (upstream,) = upstream_of
        dtype = keras.backend.result_type(upstream.dtype, "float32")
        factor = -ops.cast(scale, dtype)
        product = ops.cast(upstream, dtype) * factor
        return ops.cast(product, upstream.dtype), ops.zeros_like(scale)

    return inputs, gradient
