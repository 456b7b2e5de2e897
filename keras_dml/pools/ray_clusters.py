"""Where a Ray cluster is, and whether it answers.

Ray itself waits for a quarter of an hour if no cluster responds.
"""

import os
import socket
import subprocess
import sys

_CONNECTS = 5.0
"""Seconds in which the port of a cluster has to be open."""

_ANSWERS = 20.0
"""Seconds in which a cluster has to answer."""


def cluster_at(given: str) -> str | None:
    """The address of the cluster to join; None if Ray is to start here.

    Args:
        given: As `address` of `RayActors`.

    Raises:
        OSError: If none answers where one is named, within half a minute.
    """
    if given == "local":
        return None
    named = os.environ.get("RAY_ADDRESS", "auto") if given == "auto" else given
    if named == "auto":
        from ray._private.services import find_bootstrap_address

        # What a cluster that was killed has left behind is no mistake.
        latest = find_bootstrap_address(None)
        return latest if latest and _is_open(latest) else None
    if not _is_open(named) or not _answers(named):
        raise OSError(
            f"No Ray cluster answers at {named}. An address is HOST:PORT, as "
            '`ray start --head` shows it; "local" starts Ray on this machine.'
        )
    return named


def _is_open(address: str) -> bool:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _CONNECTS):
            return True
    except (OSError, ValueError):
        return False


def _answers(address: str) -> bool:
    """Whether what has opened a port is a Ray cluster."""
    if address.startswith("ray://"):
        return True  # Its client waits for half a minute only.
    command = ["-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(
            [sys.executable, *command], capture_output=True, timeout=_ANSWERS
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
