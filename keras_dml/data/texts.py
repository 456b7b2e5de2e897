"""Texts: bytes as tokens, and a data set of names as people type them."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.types import Count, IntArray

MAX_BYTES = 48
"""Number of bytes of a text that are kept."""

NUM_TEXTS = 8
"""Number of texts per name."""

# Symbols and punctuation. Python keeps this version of Unicode's database for
# good, so that the classes are the same on every machine.
_UNICODE = unicodedata.ucd_3_2_0
_CATEGORIES = "SP"

# Letters and numbers in circles and the like, whose names differ in one letter,
# as typing errors do.
_LEFT_OUT = re.compile(
    "BOX DRAWINGS|BRAILLE|BYZANTINE|CIRCLED|CJK|DIGIT|FULLWIDTH|HALFWIDTH|"
    "HANGUL|IDEOGRAPH|KANGXI|LETTER|LIGATURE|MATHEMATICAL|NUMBER|"
    "PARENTHESIZED|SQUARE [A-Z]+$|YI RADICAL|[0-9]"
)

_LITTLE_WORDS = frozenset({"a", "and", "at", "by", "for", "of", "on", "the",
                           "to", "with"})  # fmt: skip
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@check_arguments
def byte_tokens(texts: Sequence[str], length: Count) -> IntArray:
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


@dataset("symbol_names", "texts: 1,750 names of symbols, with typing errors")
def symbol_names() -> DataSplits:
    """Names of Unicode symbols as people type them; no download.

    Each class is a name, such as "black chess knight"; its examples are eight
    texts that mean it. The first is the name itself; the others have what
    happens in a search box: letters that are swapped, missing, doubled or
    replaced by an adjacent key, words that are out of order, run together or
    cut short, and missing short words. There are many near neighbors ("white
    chess knight").

    The names are those of Unicode 3.2, without names that differ only in a
    letter or a number. They are in a random order, the same on every machine;
    the first half is for training and the second for testing, and a fifth of
    the training classes is held out for validation.

    Returns:
        The splits: `ArraySet`s of byte tokens, (N, 48) int32, see
        `byte_tokens`. The names of classes are the symbol names, and the ids
        of examples are the texts.
    """
    names = symbols()
    rng = np.random.default_rng(0)
    texts = [
        text
        for name in names
        for text in (name, *(slip(name, rng) for _ in range(NUM_TEXTS - 1)))
    ]
    order = rng.permutation(len(names))
    examples = ArraySet(
        byte_tokens(texts, MAX_BYTES),
        np.repeat(order, NUM_TEXTS),
        names=dict(zip(order.tolist(), names, strict=True)),
        ids=texts,
    )
    return DataSplits.by_class(examples, "symbol_names")


def symbols() -> list[str]:
    names: dict[frozenset[str], str] = {}
    for code in range(0x110000):
        name = _UNICODE.name(chr(code), "")
        if (
            8 <= len(name) <= MAX_BYTES - 8
            and _UNICODE.category(chr(code))[0] in _CATEGORIES
            and not _LEFT_OUT.search(name)
            and all(len(word) > 1 or word == "A" for word in name.split())
        ):
            words = name.lower().split()
            # Only the first of several names with the same words is kept.
            names.setdefault(frozenset(words) - _LITTLE_WORDS, name.lower())
    return list(names.values())


def slip(name: str, rng: np.random.Generator) -> str:
    """A name with typing errors, first in its words, then in its letters."""
    words = [
        word
        for word in name.split()
        if word not in _LITTLE_WORDS or rng.random() < 0.5
    ]
    if rng.random() < 0.25:
        first = rng.integers(len(words))
        words = words[first:] + words[:first]
    if rng.random() < 0.25:
        cut = rng.integers(len(words))
        words[cut] = words[cut][:4]
    text = " ".join(words)
    for _ in range(rng.integers(1, 3 + len(text) // 6)):
        at = int(rng.integers(len(text) - 1))
        here, after = text[at], text[at + 1]
        typed = (
            after + here,  # swapped
            after,  # lost
            here + here + after,  # doubled
            _beside(here, rng) + after,  # the next key
        )[rng.integers(4)]
        text = text[:at] + typed + text[at + 2 :]
    return text


def _beside(letter: str, rng: np.random.Generator) -> str:
    for row in _KEYS:
        if letter in row:
            at = row.index(letter) + int(rng.choice((-1, 1)))
            return row[min(max(at, 0), len(row) - 1)]
    return letter
