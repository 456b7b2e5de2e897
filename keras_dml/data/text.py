"""Texts as tokens that do not require a vocabulary: their bytes."""

from collections.abc import Sequence

import numpy as np

from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import IntArray


def byte_tokens(texts: Sequence[str], length: int) -> IntArray:
    """Returns the UTF-8 bytes of texts, as tokens for a small encoder.

    This is sufficient for names, codes and short queries: there is no
    vocabulary to create and distribute, and no unknown word. For sentences,
    use the tokenizer of a pretrained encoder.

    Args:
        texts: N texts.
        length: Number of tokens per text, T: longer texts are truncated,
            shorter ones are padded with zeros, which
            `Embedding(mask_zero=True)` masks.

    Returns:
        (N, T) int32, 0 to 255.

    Raises:
        ValueError: If a text is not a string or is empty, or `length` is not a
            positive integer.

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
                "`texts` of byte_tokens must be non-empty strings. "
                f"Received: {text!r} at row {row}."
            )
        data = text.encode()[:length]
        tokens[row, : len(data)] = np.frombuffer(data, np.uint8)
    return tokens
