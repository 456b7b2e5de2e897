"""EmbeddingSlicer: one dense embedding, split into independent learners."""

import math
from typing import Any

import keras
from keras import ops

from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Count, Shape, Tensor


def slice_sizes(embedding_dim: int, num_slices: int) -> list[int]:
    """Slices of `ceil(embedding_dim / num_slices)`; the last has the rest."""
    size = math.ceil(embedding_dim / num_slices)
    last = embedding_dim - size * (num_slices - 1)
    if last < 1:
        raise ValueError(
            "`num_slices` of EmbeddingSlicer must leave at least one unit for "
            "every slice of ceil(embedding_dim / num_slices) units. Received: "
            f"num_slices={num_slices}, embedding_dim={embedding_dim} (slices "
            f"of {size}). Use an embedding_dim that num_slices divides, such "
            f"as {num_slices * size}."
        )
    return [size] * (num_slices - 1) + [last]


@register
class EmbeddingSlicer(SerializableLayer):
    """A dense embedding split into unit-length slices, one per learner.

    The paper calls this "splitting the embedding" (Sec. 3.2): slice k of a
    linear layer is learner k. The layer returns the merged embedding, which the
    paper uses for testing and clustering: the concatenated unit-length slices,
    divided by √K. `split` separates them again for training.

    Every slice has its own kernel and bias, so an optimizer can update one
    learner without touching the others. Together, they are initialized like one
    `Dense(embedding_dim)` layer and computed as one matrix product.

    Args:
        embedding_dim: Number of units of the whole embedding, D.
        num_slices: Number of learners, K. If K does not divide D, slices have
            ceil(D / K) units and the last one has fewer.
        use_bias: Whether the linear layer has a bias.
        kernel_initializer: Initializer of the whole (C, D) kernel.
        bias_initializer: Initializer of the whole (D,) bias.
        kernel_regularizer: Regularizer of each slice's kernel.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to float32,
            whatever the global policy, because norms overflow in float16.

    Call arguments:
        inputs: Pooled features, (B, C).

    Returns:
        The unit-length embedding, (B, D) float32. A slice whose linear map is
        exactly zero stays zero.

    Raises:
        ValueError: If `embedding_dim` or `num_slices` is not positive, or
            a slice would be empty.

    Example:

    ```python
    slicer = EmbeddingSlicer(128, num_slices=4)
    embedding = slicer(features)     # (B, 128)
    parts = slicer.split(embedding)  # (B, 4, 32), each row of 32 is unit
    ```

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Sec. 3.2 and 3.3.
    """

    def __init__(
        self,
        embedding_dim: Count,
        num_slices: Count,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.num_slices = num_slices
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.sizes = slice_sizes(embedding_dim, num_slices)
        self.input_spec = keras.layers.InputSpec(ndim=2)

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[-1]
        if channels is None:
            raise ValueError(
                "The last dimension of the input to EmbeddingSlicer must be "
                f"known. Received: input_shape={input_shape}. Pool the "
                "feature map to (B, C) first."
            )
        self.kernels = []
        self.biases = []
        for k in range(self.num_slices):
            kernel = self._columns(
                k,
                (channels, self.embedding_dim),
                self.kernel_initializer,
                regularizer=self.kernel_regularizer,
                name=f"slice_{k}_kernel",
            )
            self.kernels.append(kernel)
            if self.use_bias:
                bias = self._columns(
                    k,
                    (self.embedding_dim,),
                    self.bias_initializer,
                    name=f"slice_{k}_bias",
                )
                self.biases.append(bias)

    def _columns(
        self, k: int, shape: Shape, initializer: Any, **kwargs: Any
    ) -> keras.Variable:
        """The weight of slice k: its columns of a weight of this shape.

        Keras initializers return the same values at every call, so the
        columns of all slices come from one draw of the whole.
        """
        start, size = k * self.sizes[0], self.sizes[k]
        return self.add_weight(
            shape=(*shape[:-1], size),
            initializer=lambda _, dtype=None: initializer(shape, dtype)[
                ..., start : start + size
            ],
            **kwargs,
        )

    def call(self, inputs: Tensor) -> Tensor:
        kernel = ops.concatenate(self.kernels, axis=-1)
        outputs = ops.matmul(inputs, kernel)
        if self.use_bias:
            outputs = outputs + ops.concatenate(self.biases, axis=-1)
        parts = l2_normalize(self._stack(outputs))
        return self.merge(parts)

    def split(self, embedding: Tensor) -> Tensor:
        """Splits a merged embedding into its unit-length slices.

        Args:
            embedding: Output of this layer, (B, D).

        Returns:
            (B, K, ceil(D / K)), slices of unit length. If the last slice is
            shorter, it is padded with zeros, which does not change any
            distance.
        """
        return self._stack(embedding) * math.sqrt(self.num_slices)

    def merge(self, parts: Tensor) -> Tensor:
        """Merges slices into one embedding; the inverse of `split`."""
        flat = ops.reshape(parts, (-1, self.num_slices * self.sizes[0]))
        return flat[:, : self.embedding_dim] / math.sqrt(self.num_slices)

    def _stack(self, flat: Tensor) -> Tensor:
        padding = self.num_slices * self.sizes[0] - self.embedding_dim
        if padding:
            flat = ops.pad(flat, ((0, 0), (0, padding)))
        return ops.reshape(flat, (-1, self.num_slices, self.sizes[0]))

    def slice_variables(self, k: int) -> list[keras.Variable]:
        """The variables of learner `k`, not used by any other learner."""
        return [self.kernels[k], *self.biases[k : k + 1]]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.embedding_dim)
