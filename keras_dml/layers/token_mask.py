"""TokenMask: marks the tokens that count, and their positions on a grid."""

from typing import Any

from keras import ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import NonNegativeInt, Shape, Tensor


@register
class TokenMask(SerializableLayer):
    """Masks the tokens that are not pooled or attended to.

    It is the last layer of backbones whose features are tokens without a mask
    of their own. It attaches a Keras mask; the tokens pass unchanged.

    Args:
        num_prefix_tokens: Number of leading tokens that do not stand for a
            place in the input: the class token and registers of vision
            transformers. They are masked; `pooling="cls"` takes the first of
            them.
        grid: (h, w) of the patches that the remaining tokens stand for, row by
            row, used to draw attention; None if there is no grid.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: Tokens, (B, T, C), or a list of tokens and a padding mask,
            (B, T), which is 0 for padding.

    Returns:
        The tokens, (B, T, C), with a mask, (B, T).

    Raises:
        ValueError: If the number of tokens does not match prefix and grid.
    """

    def __init__(
        self,
        num_prefix_tokens: NonNegativeInt = 0,
        grid: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens
        self.grid = None if grid is None else tuple(grid)

    def build(self, input_shape: Any) -> None:
        count = _tokens(input_shape)[1]
        if self.grid is None or count is None:
            return
        expected = self.num_prefix_tokens + self.grid[0] * self.grid[1]
        if count != expected:
            raise ValueError(
                "`num_prefix_tokens` and `grid` of TokenMask must match the "
                "number of tokens. Received: "
                f"num_prefix_tokens={self.num_prefix_tokens}, "
                f"grid={self.grid}, which require {expected} tokens, and "
                f"{count} tokens."
            )

    def call(self, inputs: Tensor | list[Tensor]) -> Tensor:
        # A copy, or the input would get the mask too.
        return ops.copy(inputs[0] if _is_list(inputs) else inputs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Tensor:
        if _is_list(inputs):
            tokens, padding = inputs
            masks = [previous_mask[0], ops.not_equal(padding, 0)]
        else:
            tokens, masks = inputs, [previous_mask]
        # Tokens are counted here, because their static number may be unknown.
        ones = ops.ones_like(tokens[..., 0], dtype="int32")
        mask = ops.cumsum(ones, axis=1) > self.num_prefix_tokens
        for input_mask in masks:
            if input_mask is not None:
                mask = ops.logical_and(mask, input_mask)
        return mask

    def compute_output_shape(self, input_shape: Any) -> Shape:
        return _tokens(input_shape)

    def get_config(self) -> dict[str, Any]:
        grid = None if self.grid is None else list(self.grid)
        return {**super().get_config(), "grid": grid}


def _is_list(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple)


def _tokens(input_shape: Any) -> Shape:
    """The shape of the tokens, of a shape or of a list of two."""
    is_list = isinstance(input_shape[0], list | tuple)
    return tuple(input_shape[0] if is_list else input_shape)
