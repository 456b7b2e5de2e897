"""Decorrelation of two embeddings by an adversary."""

from typing import Any

import keras

from keras_dml.layers import GradientReversal
from keras_dml.losses.distances import l2_normalize
from keras_dml.losses.regularizers import correlation
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class Decorrelation(SerializableLayer):
    """The correlation that a small network finds between two embeddings.

    c(φ_a, φ_b) = ‖R(φ_a) ∘ ψ(R(φ_b))‖², with the gradient reversal R and
    the unit output of ψ = Dense(`units`) – ReLU – Dense(D) (Sec. 3.2).
    Whoever minimizes −c trains ψ to find the correlation, and the
    embeddings, behind R, to have none.

    The weights of ψ have "/loss/psi/" in their paths: no weight decay by
    default, and a learning rate by `rate_multipliers={"/loss/psi/": 10.0}`.

    Args:
        units: Hidden units of ψ.
        reduction: "mean" over dimensions (the released code, for which the
            published ρ are meant), or "sum" (as Eq. 7 prints it).
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Call arguments:
        target: φ_a, (B, D), unit rows: the discriminative embedding.
        source: φ_b, (B, D), unit rows: the auxiliary embedding.

    Returns:
        (B,) float32.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Eq. 7.
    """

    def __init__(
        self, units: int = 512, reduction: str = "mean", **kwargs: Any
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        check_count("Decorrelation", "units", units)
        check_choice("Decorrelation", "reduction", reduction, ("mean", "sum"))
        self.units = units
        self.reduction = reduction
        self.reversal = GradientReversal(
            dtype=self.dtype_policy, name="reversal"
        )

    def build(self, target_shape: Shape) -> None:
        dtype = self.dtype_policy
        self.psi = keras.Sequential(
            [
                keras.layers.Dense(
                    self.units, activation="relu", dtype=dtype, name="hidden"
                ),
                keras.layers.Dense(
                    target_shape[-1], dtype=dtype, name="output"
                ),
            ],
            name="psi",
        )
        with keras.name_scope("loss"):
            self.psi.build((None, target_shape[-1]))

    def call(self, target: Tensor, source: Tensor) -> Tensor:
        mapped = l2_normalize(self.psi(self.reversal(source)))
        return correlation(self.reversal(target), mapped, self.reduction)

    def compute_output_shape(
        self, target_shape: Shape, source_shape: Shape
    ) -> Shape:
        return (target_shape[0],)
