"""The number of unreadable examples that a run accepts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dml.embedding.manifest import BadExample

_SHARE, _LEAST = 0.01, 10
_NAMED = 3


def most_bad(max_bad: Any, count: int) -> int:
    """How many of `count` examples may be unreadable.

    Args:
        max_bad: Their number, an int; their share, a float from 0 to 1; or None
            for 1 % of the examples, but at least 10.
        count: Number of examples.

    Raises:
        ValueError: If `max_bad` is none of these.
    """
    if max_bad is None:
        return max(_LEAST, math.ceil(_SHARE * count))
    whole = isinstance(max_bad, int | np.integer)
    if whole and not isinstance(max_bad, bool) and max_bad >= 0:
        return int(max_bad)
    if isinstance(max_bad, float | np.floating) and 0 <= max_bad <= 1:
        return math.floor(max_bad * count)
    raise ValueError(
        "`max_bad` of embed_shards must be a number of examples, at least 0, "
        f"or a share from 0.0 to 1.0. Received: max_bad={max_bad!r}. Use for "
        "instance 100 or 0.01."
    )


def check_bad(bad: Sequence[BadExample], most: int, folder: str) -> None:
    """Raises ValueError if there are more unreadable examples than allowed."""
    if len(bad) <= most:
        return
    named = " ".join(f"Row {x.row}: {x.error}" for x in bad[:_NAMED])
    raise ValueError(
        "`max_bad` of embed_shards must be at least the number of unreadable "
        f"examples. Received: {most}, but {len(bad)} could not be read so far. "
        f"{named} Fix or remove these files, or allow more with --max-bad "
        f"(max_bad=…). The shards in {folder!r} are kept, and the same call "
        "continues."
    )
