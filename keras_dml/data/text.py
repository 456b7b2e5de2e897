"""Texts as tokens that need no vocabulary: their bytes."""

from collections.abc import Sequence

import numpy as np

from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import IntArray


def byte_tokens(texts: Sequence[str], length: int) -> IntArray:
    """The UTF-8 bytes of texts, as a small encoder takes them.

    Names, codes and short queries need no more: no vocabulary to make and
    to ship, and no word is unknown. For sentences use the tokenizer that a
    pretrained encoder brings.

    Args:
        texts: N texts.
        length: Tokens of a text, T: longer ones are cut, shorter ones end
            in zeros, which `Embedding(mask_zero=True)` masks.

    Returns:
        (N, T) int32, 0 to 255.

    Raises:
        ValueError: If a text is not a string or has no bytes, or `length`
            is not a positive integer.

    Example:

    ```python
    byte_tokens(["snowman"], 8)
    # [[115, 110, 111, 119, 109, 97, 110, 0]]
    ```
    """
    check_count("byte_tokens", "length", length)
    if isinstance(texts, str):
        raise ValueError(
            "`texts` of byte_tokens must be a sequence of strings. Received: "
            f"the string {texts!r}. Use [{texts!r}] for one text."
        )
    tokens = np.zeros((len(texts), length), np.int32)
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise ValueError(
                "`texts` of byte_tokens must be strings that are not empty. "
                f"Received: {text!r} at row {row}."
            )
        data = text.encode()[:length]
        tokens[row, : len(data)] = np.frombuffer(data, np.uint8)
    return tokens
