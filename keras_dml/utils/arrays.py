"""Checks of what the user hands over: embeddings, ids, memory."""

import re
from typing import Any

import numpy as np

from keras_dml.utils.types import FloatArray, Rows

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def as_embeddings(x: Any, name: str, owner: str) -> FloatArray:
    """Checks embeddings and makes them float32 (float64 stays).

    Args:
        x: (N, D), any real numbers.
        name: What messages call the argument.
        owner: The function whose argument it is.

    Returns:
        (N, D), C-contiguous.

    Raises:
        ValueError: If `x` is not a non-empty matrix of finite real
            numbers.
    """
    x = np.asarray(x)
    if x.ndim != 2 or not x.size:
        raise ValueError(
            f"`{name}` of {owner} must be a non-empty (N, D) array of "
            f"embeddings. Received: {name}.shape={x.shape}."
        )
    if x.dtype != np.float64:
        # bfloat16 is no NumPy kind; whatever casts to float32 by value is
        # a real number, and complex numbers, objects and texts are not.
        if x.dtype.kind in "cOSUMm" or x.dtype == bool:
            raise ValueError(
                f"`{name}` of {owner} must be real numbers. Received: "
                f"{name}.dtype={x.dtype}."
            )
        x = x.astype(np.float32, copy=False)
    x = np.ascontiguousarray(x)
    _check_finite(x, name, owner)
    return x


def _check_finite(x: FloatArray, name: str, owner: str) -> None:
    chunk = max(1, 2**22 // x.shape[1])
    bad: list[int] = []
    for start in range(0, len(x), chunk):
        finite = np.isfinite(x[start : start + chunk]).all(axis=1)
        bad.extend((start + np.flatnonzero(~finite)).tolist())
    if bad:
        raise ValueError(
            f"`{name}` of {owner} must be finite. Received: {len(bad)} of "
            f"{len(x)} rows with NaN or infinity, the first is row "
            f"{bad[0]}. Such embeddings usually mean that training "
            "diverged: lower the learning rate or clip gradients."
        )


def as_ids(ids: Any, count: int, name: str, owner: str) -> Rows:
    """Checks class ids (or group ids), one a row, and makes them int64.

    Args:
        ids: (N,) integers.
        count: N.
        name: What messages call the argument.
        owner: The function whose argument it is.

    Returns:
        (N,) int64.

    Raises:
        ValueError: If they are not `count` integers.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` of {owner} must be integers; float32 cannot tell "
            f"ids above 2**24 apart. Received: {name}.dtype={ids.dtype}. "
            f"Use `np.unique({name}, return_inverse=True)[1]` to number "
            "other kinds of ids."
        )
    if ids.shape != (count,):
        raise ValueError(
            f"`{name}` of {owner} must have one id for each embedding. "
            f"Received: {name}.shape={ids.shape} and {count} embeddings."
        )
    return ids.astype(np.int64, copy=False)


def as_bytes(memory: int | str, owner: str) -> int:
    """Number of bytes of `512 * 2**20`, "512MB" or "2 GB".

    Raises:
        ValueError: If it is no such amount, or below 1 MB.
    """
    match = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)B?\s*", str(memory).upper()
    )
    if not match:
        raise ValueError(
            f"`memory` of {owner} must be a number of bytes or a text such "
            f'as "512MB". Received: memory={memory!r}.'
        )
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < 2**20:
        raise ValueError(
            f"`memory` of {owner} must be at least 1MB. Received: "
            f'memory={memory!r}. Use "64MB" or more to be fast.'
        )
    return size
