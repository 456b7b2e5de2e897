"""Files: written whole or not at all, and locked for one writer at a time.

`Document` writes a dataclass as JSON with a format, a version and a checksum.
One may come from a stranger, so types are checked strictly before anything
is made of it.
"""

import contextlib
import errno
import json
import logging
import os
import platform
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xxhash import xxh3_128, xxh3_128_hexdigest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

logger = logging.getLogger(__name__)

D = TypeVar("D", bound="DataclassInstance")


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file that takes the place of `path` when the block ends.

    Others see the old file or the new one, never a part, also after a power
    cut. Where the block raises, the disk is full or the process is killed, the
    old file is still there. A link is replaced, not what it points to; what is
    no file, such as /dev/stdout, is written to as it is. The path that is
    yielded is a hidden file in the same folder, with a unique name and the
    same suffix.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target
        return
    name = f".{target.name}.{secrets.token_hex(8)}{target.suffix}"
    partial = target.with_name(name)
    try:
        yield partial
        sync(partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    sync(target.parent)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A new folder, which is moved to `path` when the block ends.

    That fails with an `OSError` if another process has made it meanwhile.
    """
    beside = next(x for x in path.absolute().parents if x.exists())
    with tempfile.TemporaryDirectory(prefix=".new-", dir=beside) as folder:
        new = Path(folder) / "new"
        yield new
        path.parent.mkdir(parents=True, exist_ok=True)
        new.rename(path)


_PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}(\.[^.]*)?")
"""Names of the files that `atomic_file` yields."""


def sweep(folder: str | os.PathLike[str]) -> None:
    """Removes partial files in and below a folder in which nobody writes."""
    for path in Path(folder).rglob(".*"):
        if _PARTIAL.fullmatch(path.name) and path.is_file():
            path.unlink()


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes
) -> None:
    """Writes a file whole or not at all; text is written as UTF-8."""
    with atomic_file(path) as partial:
        partial.write_bytes(
            content.encode() if isinstance(content, str) else content
        )


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a regular file; a ValueError over `max_bytes`."""
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return content


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError unless a path is that of a regular file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if os.name == "nt":
        return  # Windows cannot sync what is open for reading only.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK = ".lock"
"""Name of a folder's lock file."""

# Error codes of file systems without locks, such as some of clusters.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def one_at_a_time(folder: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Locks a folder, which is created if missing.

    A BlockingIOError names the process that holds the lock. On a file system
    without locks, a warning is logged instead.
    """
    path = Path(folder) / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path, wait=False))
            path.write_text(f"process {os.getpid()} on {platform.node()}")
        except BlockingIOError:
            raise BlockingIOError(
                f"Another {what} is using {os.fspath(folder)!r}: "
                f"{path.read_text() or 'a process'}. Wait for it, or use "
                "another folder. The lock ends with that process, "
                f"even if it is killed; the file {LOCK} can stay."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning(
                "%s cannot be locked (%s). Make sure that nothing else writes "
                "to it.",
                folder,
                error.strerror,
            )
        yield


@contextlib.contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Holds the lock of a file; a killed process releases it, too.

    The file is created if missing, and stays; it must not be a link. Without
    `wait`, a lock that another process holds is a BlockingIOError.
    """
    try:
        import fcntl
    except ImportError:  # Only POSIX systems have these locks.
        yield
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """Checksum of a file: XXH3, 128 bits."""
    # Pages of a mapped file would count as memory of the process.
    hasher, buffer = xxh3_128(), memoryview(bytearray(2**20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
    return hasher.hexdigest()


class OtherDocument(ValueError):
    """Another format, or another `version` of it, than was expected."""

    def __init__(self, message: str, version: Any = None) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True)
class Document(Generic[D]):
    """The format of a dataclass in JSON; no other version is read."""

    kind: type[D]
    name: str
    version: int = 1

    def write(self, value: D, **more: Any) -> str:
        """The text of a file; `more` is for people who open it."""
        head = {"format": self.name, "format_version": self.version}
        # JSON turns all keys into text; the checksum is of what is read.
        plain = json.loads(json.dumps({**head, **more, **asdict(value)}))
        plain["checksum"] = checksum(plain)
        return json.dumps(plain, indent=1, allow_nan=False)

    def read(self, text: str | bytes) -> D:
        """The value in a text; `OtherDocument`, or ValueError for damage."""
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
            # Lines 2 and 3 of pydantic's text are the first error.
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
    """Changes in dicts and lists, as "key.key: before → after"."""
    old, new = flat(before), flat(after)
    return [
        f"{key}: {old.get(key, 'nothing')} → {new.get(key, 'nothing')}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def format_changes(changes: list[str]) -> str:
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
    values: dict[str, Any] = {}
    for key, below in items.items():
        values |= flat(below, *keys, str(key))
    return values
