"""Memory: what is free is given back to the system."""

import contextlib
import ctypes
import gc

# Parameters of glibc's mallopt(3), and what they are set to: a thread has no
# heap of its own beyond the first two, and what is large is mapped alone.
_ARENA_MAX, _ARENAS = -8, 2
_MMAP_THRESHOLD, _MAPPED = -3, 2**22


def limit_memory() -> None:
    """Has the allocator keep less, for a process of many threads."""
    with _glibc():
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MAPPED)


def release_memory(collect: bool = False) -> None:
    """Gives free memory back, which the allocator keeps for later.

    Args:
        collect: Whether to look for garbage first, which takes longer.
    """
    if collect:
        gc.collect()
    with _glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _glibc() -> contextlib.AbstractContextManager[None]:
    """Other systems have other allocators."""
    return contextlib.suppress(OSError, AttributeError, TypeError)
