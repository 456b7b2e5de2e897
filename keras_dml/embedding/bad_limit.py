"""How many examples may be bad before a run stops."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dml.embedding.manifest import BadExample

_SHARE, _LEAST = 0.01, 10
_NAMED = 3


def most_bad(max_bad: Any, count: int) -> int:
    """How many of `count` examples may be bad.

    Args:
        max_bad: How many, an int; what share, a float between 0 and 1; or
            None, a hundredth of them, and 10 at least.
        count: How many there are.

    Raises:
        ValueError: If it is something else.
    """
    if max_bad is None:
        return max(_LEAST, math.ceil(_SHARE * count))
    whole = isinstance(max_bad, int | np.integer)
    if whole and not isinstance(max_bad, bool) and max_bad >= 0:
        return int(max_bad)
    if isinstance(max_bad, float | np.floating) and 0 <= max_bad <= 1:
        return math.floor(max_bad * count)
    raise ValueError(
        "`max_bad` of embed_shards must be a number of examples, 0 or more, "
        f"or a share, 0.0 to 1.0. Received: max_bad={max_bad!r}. Use for "
        "instance 100 or 0.01."
    )


def check_bad(bad: Sequence[BadExample], most: int, folder: str) -> None:
    """Raises ValueError if more examples are bad than may be."""
    if len(bad) <= most:
        return
    named = " ".join(f"Row {x.row}: {x.error}" for x in bad[:_NAMED])
    raise ValueError(
        "`max_bad` of embed_shards must be at least the examples that cannot "
        f"be read. Received: {most}, and {len(bad)} up to now. {named} Fix or "
        "remove these files, or allow more: --max-bad (max_bad=…). The "
        f"shards in {folder!r} are kept, and the same call continues."
    )
