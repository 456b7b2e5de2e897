"""Documents: dataclasses as JSON, of a format and a version, with a checksum.

Who reads one may have been given it by a stranger: what is wrong is found
before anything is made of it, and types are checked strictly. How two nested
values differ is told in lines of text.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xxhash import xxh3_128_hexdigest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


class OtherDocument(ValueError):
    """Something else than was to be read, or another `version` of it."""

    def __init__(self, message: str, version: Any = None) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True)
class Document(Generic[D]):
    """How a dataclass, whose values JSON has, is written and read.

    The format has a name and a version, and no other version is read.
    """

    kind: type[D]
    name: str
    version: int = 1

    def write(self, value: D, **more: Any) -> str:
        """As the text of a file; with `more` for those who look into it."""
        head = {"format": self.name, "format_version": self.version}
        # Keys as they are read: all of JSON's are text.
        plain = json.loads(json.dumps({**head, **more, **asdict(value)}))
        plain["checksum"] = checksum(plain)
        return json.dumps(plain, indent=1, allow_nan=False)

    def read(self, text: str | bytes) -> D:
        """What `write` wrote.

        Raises:
            OtherDocument: If it is of another format, or another version.
            ValueError: If it is damaged, or was edited.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
        if not isinstance(plain, dict) or plain.get("format") != self.name:
            raise OtherDocument("it is something else")
        version = plain.get("format_version")
        if version != self.version:
            raise OtherDocument(f"format_version={version!r}", version)
        if plain.pop("checksum", None) != checksum(plain):
            raise ValueError("its checksum is wrong")
        try:
            value: D = self._adapter.validate_json(text, strict=True)
        except ValueError as error:
            # Of pydantic's lines the first error is the second and third.
            raise ValueError(" ".join(str(error).split("\n")[1:3])) from None
        return value

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)


def checksum(plain: Mapping[str, Any]) -> str:
    """Checksum of plain values by name, whatever their order: XXH3."""
    text = json.dumps(plain, sort_keys=True, allow_nan=False)
    return xxh3_128_hexdigest(text.encode())


def differences(before: Any, after: Any) -> list[str]:
    """What has changed in dicts and lists, as "key.key: before → after"."""
    old, new = flat(before), flat(after)
    return [
        f"{key}: {old.get(key, 'nothing')} → {new.get(key, 'nothing')}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def listed(changes: list[str]) -> str:
    """The first few changes, one per line."""
    lines = changes[:5]
    more = len(changes) - len(lines)
    return "\n  ".join([*lines, *([f"… and {more} more"] if more else [])])


def flat(value: Any, *keys: str) -> dict[str, Any]:
    """The values inside dicts and lists, by dotted key."""
    items: dict[Any, Any] = {}
    if isinstance(value, dict):
        items = value
    elif isinstance(value, list):
        items = dict(enumerate(value))
    if not items:
        return {".".join(keys): value} if keys or value else {}
    found: dict[str, Any] = {}
    for key, below in items.items():
        found |= flat(below, *keys, str(key))
    return found
