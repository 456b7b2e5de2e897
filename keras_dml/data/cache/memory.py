"""Memory that is available on this machine."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")

# Limit and use of a container's memory, of both kinds of control groups.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available_memory() -> int:
    """Bytes of memory that can be had without pushing others out.

    Where the system does not say (it does on Linux), a quarter of all
    memory, and 0 where not even that is known. The limit of a container
    is respected.
    """
    rooms = [_of_system()]
    for limit, used in _GROUPS:
        try:
            most = int(Path(limit).read_text())
            rooms.append(max(0, most - int(Path(used).read_text())))
        except (OSError, ValueError):
            continue  # No such group, or "max".
    return min(rooms)


def _of_system() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    return max(0, total // 4)  # -1 pages where their number is not known.
