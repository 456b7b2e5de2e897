"""TokenMask: which tokens count, and where on a grid they are."""

from typing import Any

from keras import ops

from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class TokenMask(SerializableLayer):
    """Says which tokens are pooled and attended to, by a Keras mask.

    It is the last layer of backbones whose features are tokens and do not
    have a mask by themselves. Tokens pass as they are.

    Args:
        num_prefix_tokens: Number of tokens in front that are no place in
            the input: the class token and registers of vision
            transformers. They are masked, and `pooling="cls"` is the
            first of them.
        grid: (h, w) of the patches whose tokens follow, row by row; None
            if they are on no grid. Attention is drawn on it.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: Tokens, (B, T, C), or a list of tokens and a padding mask,
            (B, T), of what is not 0 where there is a token.

    Returns:
        The tokens, (B, T, C), with the mask (B, T).

    Raises:
        ValueError: If the tokens are fewer, or others, than the prefix
            and the grid make.
    """

    def __init__(
        self,
        num_prefix_tokens: int = 0,
        grid: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_prefix_tokens = check_count(
            "TokenMask", "num_prefix_tokens", num_prefix_tokens, least=0
        )
        self.grid = None if grid is None else tuple(grid)

    def build(self, input_shape: Any) -> None:
        count = _tokens(input_shape)[1]
        if self.grid is None or count is None:
            return
        expected = self.num_prefix_tokens + self.grid[0] * self.grid[1]
        if count != expected:
            raise ValueError(
                "`num_prefix_tokens` and `grid` of TokenMask must make as "
                "many tokens as there are. Received: num_prefix_tokens="
                f"{self.num_prefix_tokens}, grid={self.grid}, which make "
                f"{expected}, with {count} tokens."
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
        # Counted, as the number of tokens may not be known.
        ones = ops.ones_like(tokens[..., 0], dtype="int32")
        mask = ops.cumsum(ones, axis=1) > self.num_prefix_tokens
        for given in masks:
            if given is not None:
                mask = ops.logical_and(mask, given)
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
