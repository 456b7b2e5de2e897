"""Files: written whole or not at all, and locked for one writer at a time."""

import contextlib
import errno
import logging
import os
import platform
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xxhash import xxh3_128

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file that takes the place of `path` when the block ends.

    Others see the old file or the new one, never a part, and so does who
    looks after a power cut. Where the block raises, the disk is full or the
    process is killed, the old file is still there.

    Args:
        path: The file; its folder is made where needed. A link is replaced,
            not what it points to. What is no file, such as /dev/stdout, is
            written to as it is.

    Yields:
        The path to write to: in the same folder, hidden, with the same
        suffix, of a name that no other writer has.
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
    """A folder to be made, which becomes `path` when the block ends.

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
    """Removes what writers of `atomic_file` left that were killed.

    Nobody may write in the folder, or below it.
    """
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


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a file of at most `most` bytes.

    Raises:
        OSError: If it cannot be read, or is a folder, a pipe or a device,
            of which some never end.
        ValueError: If it is larger.
    """
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError if a path is not that of a file with content."""
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
"""The file in a folder that stands for its lock."""

# What file systems that have no locks say, such as some of clusters.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def one_at_a_time(folder: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Keeps others out of a folder, in which something is at work.

    The folder is made where needed. Where the file system has no locks, this
    is logged, and nobody kept out.

    Raises:
        BlockingIOError: If another process has it; that one is named.
    """
    path = Path(folder) / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait=False))
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
def locked(path: str | os.PathLike[str], wait: bool = True) -> Iterator[None]:
    """Holds a lock; that of a process that is killed ends with it.

    The file that stands for it is made where needed, and stays; it must be no
    link.

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
    # Pages of a mapped file would count as memory of the process.
    found, buffer = xxh3_128(), memoryview(bytearray(2**20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
    return found.hexdigest()
