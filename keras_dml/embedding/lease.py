"""Lease: who writes into a folder of an object store, which has no locks."""

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
"""Seconds after which a lease that was not renewed counts no longer."""

_RENEWED = STALE / 4
_SETTLED = 0.2


@contextlib.contextmanager
def leased(storage: "Storage", what: str) -> Iterator[None]:
    """Keeps other writers out of an object store while the block runs.

    An object says who writes, and until when: it is renewed by a thread, and
    counts no longer a minute after its writer was killed. Where two begin at
    once, the later one to write the object goes on.

    Args:
        storage: The folder.
        what: What is at work in it, as "embedding".

    Raises:
        BlockingIOError: If there is another writer; it is named.
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
        f"Another {what} is at work in {storage.name!r}: {found['holder']}. "
        f"Wait for it, or use another folder. If it was killed, its lease "
        f"ends {STALE:.0f} seconds after it was last renewed."
    )


def _read(storage: "Storage") -> dict[str, Any] | None:
    """The lease; None if there is none, or it is none of ours."""
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
        # A store that is away for a moment is tried again.
        with contextlib.suppress(OSError):
            _write(storage, token)
