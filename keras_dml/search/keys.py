"""Keys: the user's names for the rows of an index."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from keras_dml.utils.types import Rows

Key: TypeAlias = str | int
"""The key of a row; its id if rows have no keys."""

_INT64 = np.iinfo(np.int64)


class Keys:
    """Own keys of rows, each once: all text, or all integers.

    Args:
        keys: The key of every row, N.
        ids: Their ids, ascending, (N,).
    """

    def __init__(self, keys: Iterable[Key] = (), ids: Any = ()) -> None:
        # In the order of the rows: new rows come last.
        self._ids = dict(zip(keys, np.asarray(ids).tolist(), strict=True))
        self._listed: list[Key] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        return key in self._ids

    @property
    def listed(self) -> list[Key]:
        """The keys in the order of the rows."""
        if self._listed is None:
            self._listed = list(self._ids)
        return self._listed

    def id_of(self, key: Key) -> int | None:
        """The id of the row with a key, or None."""
        return self._ids.get(key)

    def add(self, keys: Iterable[Key], ids: Rows) -> None:
        """Adds the keys of new rows."""
        self._ids.update(zip(keys, ids.tolist(), strict=True))
        self._listed = None

    def remove(self, ids: Rows) -> None:
        """Removes the keys of rows."""
        removed = set(ids.tolist())
        self._ids = {k: i for k, i in self._ids.items() if i not in removed}
        self._listed = None

    @property
    def kind(self) -> type | None:
        """Type of the keys; None if there are none."""
        return type(self.listed[0]) if self._ids else None


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


def check_given(keys: Any, owner: str, has_own: bool, is_empty: bool) -> bool:
    """Whether keys are given; ValueError if that does not fit the rows."""
    if keys is None and has_own:
        raise ValueError(
            f"`keys` of {owner} must be given, because the rows of the index "
            "have keys. Received: no keys."
        )
    if keys is not None and not has_own and not is_empty:
        raise ValueError(
            f"`keys` of {owner} require an index whose rows have keys. "
            "Received: keys for an index whose rows have only ids. Build it "
            "with Index(…, keys=…)."
        )
    return keys is not None


def new_keys(keys: Any, count: int, owner: str, kind: type | None) -> list[Key]:
    """The own keys of rows to be written: one each, and of the right kind."""
    listed = as_keys(keys, owner)
    if len(listed) != count:
        raise ValueError(
            f"`keys` of {owner} must be one key per row. Received: "
            f"{len(listed)} keys for {count} rows."
        )
    check_unique(listed, owner)
    check_kind(kind, listed, owner)
    return listed


def check_ids(keys: list[Key], owner: str, name: str) -> None:
    """ValueError if some of the keys of rows without own keys are text."""
    if any(isinstance(key, str) for key in keys):
        raise ValueError(
            f"`{name}` of {owner} must be ids, because the rows of the index "
            f"have no keys. Received: {keys[0]!r}. Build the index with "
            "Index(…, keys=…)."
        )


def as_keys(keys: Any, owner: str, name: str = "keys") -> list[Key]:
    """Keys as a list of text or of Python's integers.

    Args:
        keys: Several keys, or one.
        owner: Whose argument they are.
        name: Its name.

    Raises:
        ValueError: If they are something else, or of both kinds.
    """
    if isinstance(keys, str | int | np.integer):
        keys = [keys]
    if isinstance(keys, bytes) or not np.iterable(keys):
        raise _refusal(owner, name, keys, "")
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if set(map(type, listed)) == {str}:
        return listed  # A million pass in milliseconds.
    listed = [x.item() if isinstance(x, np.generic) else x for x in listed]
    kind = type(listed[0]) if listed else int
    for place, key in enumerate(listed):
        if type(key) is not kind or kind not in (str, int):
            raise _refusal(owner, name, key, f", at position {place}")
        if kind is int and not _INT64.min <= key <= _INT64.max:
            raise ValueError(
                f"`{name}` of {owner} that are integers must fit into 64 bits. "
                f"Received: {key}. Use str(key)."
            )
    return listed


def check_unique(keys: list[Key], owner: str) -> None:
    """ValueError if a key occurs twice."""
    if len(set(keys)) == len(keys):
        return
    seen: set[Key] = set()
    for place, key in enumerate(keys):
        if key in seen:
            raise ValueError(
                f"`keys` of {owner} must be unique. Received: {key!r} again at "
                f"position {place}. Use one row per key."
            )
        seen.add(key)


def _refusal(owner: str, name: str, key: Any, where: str) -> ValueError:
    return ValueError(
        f"`{name}` of {owner} must be all text or all integers. Received: "
        f"{key!r}, a {type(key).__name__}{where}. Use str(key)."
    )
