"""Leases: one writer at a time in object stores, which do not have locks."""

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_dml.embedding.storage import Storage

LEASE = ".lease.json"

STALE = 60.0
"""Seconds after which a lease expires unless it is renewed."""

_RENEWED = STALE / 4
_SETTLED = 0.2


@contextlib.contextmanager
def leased(storage: "Storage", what: str) -> Iterator[None]:
    """Locks a folder of an object store while the block runs.

    The lease is an object that names the writer. A thread renews it, and it
    expires a minute after its writer was killed. If two writers start at the
    same time, the one that writes the object last continues.

    Args:
        storage: The folder.
        what: What is done in the folder, such as "embedding".

    Raises:
        BlockingIOError: If there is another writer, which is named.
    """
    _check_free(storage, what)
    token = secrets.token_hex(8)
    _write(storage, token)
    time.sleep(_SETTLED)
    found = _read(storage)
    if found is not None and found.get("token") != token:
        raise _taken(storage, what, found)
    ended = threading.Event()
    renewal = threading.Thread(
        target=_renew, args=(storage, token, ended), daemon=True
    )
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        storage.remove(LEASE)


def _check_free(storage: "Storage", what: str) -> None:
    found = _read(storage)
    if found is not None and time.time() - found["time"] < STALE:
        raise _taken(storage, what, found)


def _taken(
    storage: "Storage", what: str, found: dict[str, Any]
) -> BlockingIOError:
    return BlockingIOError(
        f"Another {what} is using {storage.name!r}: {found['holder']}. Wait "
        "for it to end, or use another folder. If it was killed, its lease "
        f"expires {STALE:.0f} seconds after it was last renewed."
    )


def _read(storage: "Storage") -> dict[str, Any] | None:
    """The lease; None if there is none, or it has another format."""
    try:
        found: Any = json.loads(storage.read(LEASE))
    except (FileNotFoundError, ValueError):
        return None
    if isinstance(found, dict) and isinstance(found.get("time"), float):
        return found
    return None


def _write(storage: "Storage", token: str) -> None:
    holder = f"process {os.getpid()} on {platform.node()}"
    lease = {"token": token, "holder": holder, "time": time.time()}
    storage.write(LEASE, json.dumps(lease).encode())


def _renew(storage: "Storage", token: str, ended: threading.Event) -> None:
    while not ended.wait(_RENEWED):
        # If the store cannot be reached for a moment, this is tried again.
        with contextlib.suppress(OSError):
            _write(storage, token)
