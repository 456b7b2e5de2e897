"""Files: written whole or not at all, and locked for one writer at a time."""

import contextlib
import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from xxhash import xxh3_128_hexdigest


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file that takes the place of `path` when the block ends.

    Others see the old file or the new one, never a part, and so does who
    looks after a power cut. Where the block raises, the disk is full or the
    process is killed, the old file is still there.

    Args:
        path: The file; its folder is made where needed. A link is replaced,
            not what it points to.

    Yields:
        The path to write to: in the same folder, hidden, with the same
        suffix, of a name that no other writer has.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    name = f".{target.name}.{secrets.token_hex(8)}{target.suffix}"
    partial = target.with_name(name)
    try:
        yield partial
        sync(partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    sync(target.parent)


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes
) -> None:
    """Writes a file whole or not at all; text is written as UTF-8."""
    with atomic_file(path) as partial:
        partial.write_bytes(
            content.encode() if isinstance(content, str) else content
        )


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if os.name == "nt":
        return  # Windows cannot sync what is open for reading only.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], wait: bool = True) -> Iterator[None]:
    """Holds a lock; that of a process that is killed ends with it.

    Args:
        path: The file that stands for the lock. It is made where needed,
            and stays; it must be no link.
        wait: Whether to wait until another lets go of the lock.

    Raises:
        BlockingIOError: If another holds it and `wait` is not set.
    """
    try:
        import fcntl
    except ImportError:  # Not a POSIX system: nothing is held.
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
    if not path.stat().st_size:  # which cannot be mapped
        return xxh3_128_hexdigest(b"")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return xxh3_128_hexdigest(content)
