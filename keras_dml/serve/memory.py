"""Memory: what is free is given back to the system."""

import contextlib
import ctypes
import gc


def release_memory(collect: bool = False) -> None:
    """Gives free memory back, which glibc keeps for each of the threads.

    Args:
        collect: Whether to look for garbage first, which takes longer.
    """
    if collect:
        gc.collect()
    # Other systems have other allocators.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
