"""Rendezvous: workers connect and compare their settings before they train.

TensorFlow itself waits an hour for a missing worker, and does not notice when
workers have different recipes.
"""

import json
import logging
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

logger = logging.getLogger(__name__)

LONGEST = 2**20
"""The largest size of a message, in bytes."""

_PAUSE = 0.2
"""Seconds between two attempts to reach the first worker."""

_PATIENCE = 5.0
"""Seconds to wait for the first message of a connection."""

_SHOWN = 5
"""The largest number of differences listed in an error."""


def meet(
    workers: Sequence[str],
    index: int,
    facts: Mapping[str, Any],
    timeout: float = 300.0,
) -> None:
    """Waits for all workers to connect, and checks that their facts agree.

    The first worker listens on its own address, which is free again when this
    function returns.

    Args:
        workers: Addresses of all workers, "host:port".
        index: The index of this worker, from 0.
        facts: JSON values, by name, that must be the same on all workers.
        timeout: Seconds to wait for the other workers.

    Raises:
        TimeoutError: If a worker does not connect in time.
        ValueError: If the facts of workers differ, or two workers have the same
            index.
        OSError: If the first worker cannot listen on its address.
    """
    deadline = time.monotonic() + timeout
    own = {"index": index, "facts": dict(facts)}
    if index == 0:
        _receive_all(workers, own, deadline, timeout)
    else:
        _report(workers, own, deadline, timeout)


def _receive_all(
    workers: Sequence[str], own: Any, deadline: float, timeout: float
) -> None:
    problem: Exception | None = None
    with ExitStack() as stack:
        listener = stack.enter_context(closing(_listener(workers[0])))
        connections: list[socket.socket] = []
        missing = dict(enumerate(workers))
        del missing[0]
        try:
            for connection, told in _arrivals(listener, deadline):
                connections.append(stack.enter_context(closing(connection)))
                problem = _misfit(workers, own, told, missing)
                missing.pop(told["index"], None)
                if problem or not missing:
                    break
        except TimeoutError:
            lacking = ", ".join(f"{i} ({x})" for i, x in missing.items())
            problem = TimeoutError(
                f"Worker {lacking} of {len(workers)} did not connect within "
                f"{timeout:g} s. Start all workers with the same --workers, "
                f"each with its own --index, on hosts that can reach "
                f"{workers[0]}."
            )
        answer = {
            "problem": str(problem) if problem else None,
            "is_late": isinstance(problem, TimeoutError),
        }
        for connection in connections:
            _send(connection, answer)
    if problem:
        raise problem


def _listener(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    try:
        # On every address of this host, as its name may resolve to another.
        return socket.create_server(("", int(port)))
    except OSError as error:
        raise OSError(
            f"Worker 0 cannot listen on {host}:{port}: {error.strerror}. Stop "
            "the process that uses the port, or choose another port in "
            "--workers."
        ) from error


def _arrivals(
    listener: socket.socket, deadline: float
) -> Iterator[tuple[socket.socket, Any]]:
    """Workers that connect; any other connection is closed."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        listener.settimeout(left)
        connection, _ = listener.accept()
        # A port scan sends nothing, and must not delay the workers.
        connection.settimeout(min(left, _PATIENCE))
        try:
            told = _received(connection)
            told["index"], told["facts"]
        except (OSError, ValueError, TypeError, KeyError):
            connection.close()
            continue
        yield connection, told


def _misfit(
    workers: Sequence[str],
    own: Any,
    told: Any,
    missing: Mapping[int, str],
) -> Exception | None:
    """Why a worker cannot take part; None if it can."""
    index = told["index"]
    if index not in missing:
        return ValueError(
            "`index` must be different for every worker, from 0 to "
            f"{len(workers) - 1}. Received: {index}, which is taken or out of "
            f"range, for the workers {', '.join(workers)}."
        )
    different = differences(own["facts"], told["facts"])
    if different:
        return ValueError(
            "All workers must have the same recipe, settings and versions. "
            f"Received from worker 0 and from worker {index}: "
            f"{'; '.join(different)}."
        )
    return None


def _report(
    workers: Sequence[str], own: Any, deadline: float, timeout: float
) -> None:
    host, port = workers[0].rsplit(":", 1)
    connection = None
    while connection is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"Worker 0 ({workers[0]}) could not be reached within "
                f"{timeout:g} s. Start it on a host and port that this host "
                "can reach."
            )
        try:
            connection = socket.create_connection((host, int(port)), left)
        except OSError:
            time.sleep(min(_PAUSE, left))
    with closing(connection):
        _send(connection, own)
        # The first worker waits as long as this one, but may have started
        # later.
        connection.settimeout(timeout + left)
        try:
            answer = _received(connection)
        except (OSError, ValueError) as error:
            raise TimeoutError(
                f"Worker 0 ({workers[0]}) ended before all workers had "
                "connected, or is not a keras_dml training. Check its output."
            ) from error
    if answer["problem"]:
        kind = TimeoutError if answer["is_late"] else ValueError
        raise kind(answer["problem"])


def _send(connection: socket.socket, message: Any) -> None:
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError as error:  # It is gone; TensorFlow will notice.
        logger.warning("A worker left before training began: %s", error)


def _received(connection: socket.socket) -> Any:
    with connection.makefile("rb") as lines:
        line = lines.readline(LONGEST)
    if not line.endswith(b"\n"):
        raise ValueError("not a whole message")
    return json.loads(line)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Differences of two JSON structures, a few lines of "path: a, b"."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        found = [
            line
            for key in dict.fromkeys([*ours, *theirs])
            for line in differences(
                ours.get(key), theirs.get(key), f"{path}.{key}" if path else key
            )
        ]
        return found[:_SHOWN]
    return [] if ours == theirs else [f"{path}: {ours!r}, {theirs!r}"]
