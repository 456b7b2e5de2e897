"""Compositor: learned, signed averages of the embeddings of an ensemble."""

from typing import Any

import keras
from keras import ops

from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Config, Count, Shape, Tensor

STANDARD_NORMAL: Config = {
    "class_name": "RandomNormal",
    "config": {"mean": 0.0, "stddev": 1.0},
}


@register
class Compositor(SerializableLayer):
    """M compositors, each of which weights the learners for every image.

    From all sub-embeddings of an image, compositor m computes a weight for each
    of the K learners, and adds them up to one composite (Eq. 4 to 6):

    - score: t_m = softmax(W_m y + b_m), over the K learners;
    - sign: s_m = sgn(tanh(Ŵ_m y + b̂_m)), with sgn(0) = −1;
    - weights: c_m = t_m ∘ s_m, whose absolute values add up to 1;
    - composite: z_m = Σ_k c_m^k y_k.

    y is the concatenation of the sub-embeddings. The weights pass no gradient
    to it: learners are trained through y_k in the composite and cannot
    manipulate the weights. The sign passes its gradient unchanged to the tanh
    (straight-through estimator), so the factor 1 − tanh² applies. All
    compositors share one kernel and one matrix product.

    Args:
        num_compositors: Number of compositors, M.
        softmax: Whether to use the scores (Table 2). With False, all learners
            have the weight 1 / K and differ only in their signs.
        signs: Whether to use the signs (Table 2). With False, c = t.
        input_norm: Whether to scale y to unit length for the compositors. With
            the paper's initializer, logits have a standard deviation of about
            ‖y‖, so a long y saturates softmax and tanh from the first step;
            with a unit-length y, it is √2.
        train_on_composites: Whether the gradient of the composites reaches the
            compositors. False stops it (Table 1, "w/o J_T"); the gradient of
            the weights always passes.
        initializer: Initializer of kernel and bias, which are drawn together;
            by default a standard normal distribution, as in the paper.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Call arguments:
        inputs: Unnormalized sub-embeddings y, (B, K, d).

    Returns:
        Unnormalized composites z, (B, M, d), and weights c, (B, M, K).

    Raises:
        ValueError: If `num_compositors` is not positive, or both `softmax` and
            `signs` are False.

    Example:

    ```python
    compositor = Compositor(8)
    composites, weights = compositor(sub_embeddings)  # of (B, 4, 32)
    composites.shape, weights.shape  # (B, 8, 32), (B, 8, 4)
    ```

    Deviations:
        - The paper does not say what replaces the softmax in Table 2. Here it
          is 1 / K, so that absolute weights still add up to 1.

    Reference:
        Zheng et al., "Deep Compositional Metric Learning", CVPR 2021,
        Sec. 3.2.
    """

    def __init__(
        self,
        num_compositors: Count,
        softmax: bool = True,
        signs: bool = True,
        input_norm: bool = False,
        train_on_composites: bool = True,
        initializer: Any = STANDARD_NORMAL,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if not (softmax or signs):
            raise ValueError(
                "`softmax` and `signs` of Compositor must not both be False, "
                "because there would be nothing to learn. Received: "
                "softmax=False, signs=False. Use one of them, or no "
                "compositors."
            )
        self.num_compositors = num_compositors
        self.softmax = softmax
        self.signs = signs
        self.input_norm = input_norm
        self.train_on_composites = train_on_composites
        self.initializer = keras.initializers.get(initializer)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape: Shape) -> None:
        _, num_learners, dim = input_shape
        if num_learners is None or dim is None:
            raise ValueError(
                "The input to Compositor must be (B, K, d) with known K and "
                f"d. Received: input_shape={input_shape}."
            )
        self.num_learners = num_learners
        rows = num_learners * dim
        # Scores and signs have a column each per compositor and learner.
        self.kinds = self.softmax + self.signs
        columns = self.kinds * self.num_compositors * num_learners

        # One draw for both: a second one, from the same seed, would repeat
        # the numbers of the first.
        def draw(dtype: Any) -> Tensor:
            return self.initializer((rows + 1, columns), dtype)

        self.kernel = self.add_weight(
            (rows, columns), lambda _, dtype: draw(dtype)[:-1], name="kernel"
        )
        self.bias = self.add_weight(
            (columns,), lambda _, dtype: draw(dtype)[-1], name="bias"
        )

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        weights = self._weigh(ops.stop_gradient(inputs))
        trained = self.train_on_composites
        applied = weights if trained else ops.stop_gradient(weights)
        return ops.einsum("bmk,bkd->bmd", applied, inputs), weights

    def _weigh(self, inputs: Tensor) -> Tensor:
        """Weights c, (B, M, K), of sub-embeddings (B, K, d)."""
        y = ops.reshape(inputs, (-1, self.kernel.shape[0]))
        if self.input_norm:
            y = l2_normalize(y)
        logits = ops.reshape(
            ops.matmul(y, self.kernel) + self.bias,
            (-1, self.kinds, self.num_compositors, self.num_learners),
        )
        # (B, M, K) each: scores come first, signs last.
        scores = 1.0 / self.num_learners
        if self.softmax:
            # `ops.softmax` warns if there is a single learner.
            scores = ops.exp(ops.log_softmax(logits[:, 0], axis=-1))
        return scores * _sign(ops.tanh(logits[:, -1])) if self.signs else scores

    def compute_output_shape(self, input_shape: Shape) -> tuple[Shape, Shape]:
        batch, num_learners, dim = input_shape
        return (
            (batch, self.num_compositors, dim),
            (batch, self.num_compositors, num_learners),
        )


def _sign(x: Tensor) -> Tensor:
    """1 where x > 0 and −1 elsewhere, with the gradient of x."""
    sign = ops.where(x > 0, 1.0, -1.0)
    # x − x is 0 and not merely small, so the sign stays exact.
    return sign + (x - ops.stop_gradient(x))
