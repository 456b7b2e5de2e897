"""Keys of rows: all text or all integers, each once."""

from typing import Any, TypeAlias

import numpy as np

Key: TypeAlias = str | int
"""The key of a row; its id if rows have no keys."""

_INT64 = np.iinfo(np.int64)


def check_kind(
    kind: type | None, keys: list[Key], owner: str, name: str = "keys"
) -> None:
    """ValueError if keys are not of the type of those of an index."""
    if keys and kind and kind is not type(keys[0]):
        names = {str: "text", int: "integers"}
        raise ValueError(
            f"`{name}` of {owner} must be {names[kind]}, like those of the "
            f"index. Received: {keys[0]!r}. Use {kind.__name__}(key) to "
            "convert it."
        )


def check_new(
    keys: Any,
    count: int,
    owner: str,
    has_keys: bool | None = None,
    kind: type | None = None,
) -> list[Key] | None:
    """Validates the keys of rows to be written: one each, of the right kind.

    Args:
        keys: The user's keys; None without any.
        count: Number of rows.
        owner: Whose argument `keys` is.
        has_keys: Whether the rows of the index have keys; None if it has no
            rows yet.
        kind: Type of their keys.

    Raises:
        ValueError: If they are not; also if there are none and the other rows
            have keys, or the other way round.
    """
    if keys is None:
        if has_keys:
            raise ValueError(
                f"`keys` of {owner} must be given, because the rows of the "
                "index have keys. Received: no keys."
            )
        return None
    if has_keys is False:
        raise ValueError(
            f"`keys` of {owner} require an index whose rows have keys. "
            "Received: keys for an index whose rows have only ids. Build it "
            "with Index(…, keys=…)."
        )
    listed = as_keys(keys, owner)
    if len(listed) != count:
        raise ValueError(
            f"`keys` of {owner} must be one key per row. Received: "
            f"{len(listed)} keys for {count} rows."
        )
    if len(set(listed)) < count:
        first = {key: place for place, key in reversed([*enumerate(listed)])}
        place = next(i for i, key in enumerate(listed) if first[key] < i)
        raise ValueError(
            f"`keys` of {owner} must be unique. Received: {listed[place]!r} "
            f"again at position {place}. Use one row per key."
        )
    check_kind(kind, listed, owner)
    return listed


def as_keys(keys: Any, owner: str, name: str = "keys") -> list[Key]:
    """Several keys, or one, as a list of text or of Python's integers.

    Raises:
        ValueError: If they are something else, or of both kinds.
    """
    if isinstance(keys, str | int | np.integer):
        keys = [keys]
    if isinstance(keys, bytes) or not np.iterable(keys):
        raise _key_refusal(owner, name, keys, "")
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if set(map(type, listed)) == {str}:
        return listed  # A million pass in milliseconds.
    listed = [x.item() if isinstance(x, np.generic) else x for x in listed]
    kind = type(listed[0]) if listed else int
    for place, key in enumerate(listed):
        if type(key) is not kind or kind not in (str, int):
            raise _key_refusal(owner, name, key, f", at position {place}")
        if kind is int and not _INT64.min <= key <= _INT64.max:
            raise ValueError(
                f"`{name}` of {owner} that are integers must fit into 64 bits. "
                f"Received: {key}. Use str(key)."
            )
    return listed


def _key_refusal(owner: str, name: str, key: Any, where: str) -> ValueError:
    return ValueError(
        f"`{name}` of {owner} must be all text or all integers. Received: "
        f"{key!r}, a {type(key).__name__}{where}. Use str(key)."
    )
