"""Differences of nested values, such as settings, as lines of text."""

from typing import Any

_MOST = 5
"""The largest number of differences listed in a message."""


def differences(before: Any, after: Any) -> list[str]:
    """What has changed in dicts and lists, as "key.key: before → after"."""
    old, new = _flat(before), _flat(after)
    return [
        f"{key}: {old.get(key, 'nothing')} → {new.get(key, 'nothing')}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def listed(changes: list[str]) -> str:
    """The first few changes, one per line."""
    lines = changes[:_MOST]
    more = len(changes) - len(lines)
    return "\n  ".join([*lines, *([f"… and {more} more"] if more else [])])


def _flat(value: Any, *keys: str) -> dict[str, Any]:
    items: dict[Any, Any] = {}
    if isinstance(value, dict):
        items = value
    elif isinstance(value, list):
        items = dict(enumerate(value))
    if not items:
        return {".".join(keys): value} if keys or value else {}
    found: dict[str, Any] = {}
    for key, below in items.items():
        found |= _flat(below, *keys, str(key))
    return found
