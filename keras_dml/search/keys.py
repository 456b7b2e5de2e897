"""Keys: what users call the rows of an index."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from keras_dml.utils.types import Rows

Key: TypeAlias = str | int
"""An own key of a row; without own keys, its id."""

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

    def check_kind(
        self, keys: list[Key], owner: str, name: str = "keys"
    ) -> None:
        """ValueError if keys are text and those here integers, or so."""
        if not (keys and self._ids):
            return
        mine, theirs = type(self.listed[0]), type(keys[0])
        if mine is not theirs:
            names = {str: "text", int: "integers"}
            raise ValueError(
                f"`{name}` of {owner} must be {names[mine]}, as those of the "
                f"index are. Received: {keys[0]!r}. Use "
                f"{mine.__name__}(key) if it is the same key."
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
                f"`{name}` of {owner} that are integers must fit 64 bits. "
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
                f"`keys` of {owner} must each occur once. Received: {key!r} "
                f"again at position {place}. Keep one row for each key."
            )
        seen.add(key)


def _refusal(owner: str, name: str, key: Any, where: str) -> ValueError:
    return ValueError(
        f"`{name}` of {owner} must be all text or all integers. Received: "
        f"{key!r}, a {type(key).__name__}{where}. Use str(key)."
    )
