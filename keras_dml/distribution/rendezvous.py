"""Rendezvous: workers meet, and compare what they are, before they train.

TensorFlow by itself waits for a missing worker for an hour, and lets workers
train together that were given different recipes.
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
"""Bytes of the longest message."""

_PAUSE = 0.2
"""Seconds between two attempts to reach the first worker."""

_PATIENCE = 5.0
"""Seconds that what has connected may take to say what it is."""

_SHOWN = 5
"""Differences that an error lists."""


def meet(
    workers: Sequence[str],
    index: int,
    facts: Mapping[str, Any],
    timeout: float = 300.0,
) -> None:
    """Waits until all workers are there, and checks that they fit together.

    The first worker listens at its own address, which is free again when
    this function returns.

    Args:
        workers: Addresses of all workers, "host:port".
        index: Which of them this is, from 0.
        facts: What must be the same for all, by name, as JSON has it.
        timeout: Seconds to wait for the others.

    Raises:
        TimeoutError: If a worker has not come in time.
        ValueError: If facts of the workers differ, or two of them have one
            index.
        OSError: If the first worker cannot listen at its address.
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
                f"Worker {lacking} of {len(workers)} did not come within "
                f"{timeout:g} s. Start all workers, with one --workers and "
                f"an --index of their own, on hosts that reach {workers[0]}."
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
        # At every address of this host, which may know its name by another.
        return socket.create_server(("", int(port)))
    except OSError as error:
        raise OSError(
            f"Worker 0 cannot listen at {host}:{port}: {error.strerror}. End "
            "what uses the port, or give --workers another one."
        ) from error


def _arrivals(
    listener: socket.socket, deadline: float
) -> Iterator[tuple[socket.socket, Any]]:
    """Workers that come; whatever else connects is turned away."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        listener.settimeout(left)
        connection, _ = listener.accept()
        # A probe of the port sends nothing: it must not hold up others.
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
    """Why a worker that came cannot take part, if it cannot."""
    index = told["index"]
    if index not in missing:
        return ValueError(
            "`index` of every worker must be its own, in "
            f"0…{len(workers) - 1}. Received: {index}, which is taken or "
            f"not among them, for the workers {', '.join(workers)}."
        )
    different = differences(own["facts"], told["facts"])
    if different:
        return ValueError(
            "All workers must have the same recipe, settings and versions. "
            f"Received, of worker 0 and of worker {index}: "
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
                f"Worker 0 ({workers[0]}) was not reached within "
                f"{timeout:g} s. Start it, on a host and port that this one "
                "reaches."
            )
        try:
            connection = socket.create_connection((host, int(port)), left)
        except OSError:
            time.sleep(min(_PAUSE, left))
    with closing(connection):
        _send(connection, own)
        # The first one waits no longer than this worker does, but for when
        # they were started.
        connection.settimeout(timeout + left)
        try:
            answer = _received(connection)
        except (OSError, ValueError) as error:
            raise TimeoutError(
                f"Worker 0 ({workers[0]}) ended before all workers had come, "
                "or is no keras_dml training. See what it printed."
            ) from error
    if answer["problem"]:
        kind = TimeoutError if answer["is_late"] else ValueError
        raise kind(answer["problem"])


def _send(connection: socket.socket, message: Any) -> None:
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError as error:  # It has gone; TensorFlow will miss it.
        logger.warning("A worker left before training began: %s", error)


def _received(connection: socket.socket) -> Any:
    with connection.makefile("rb") as lines:
        line = lines.readline(LONGEST)
    if not line.endswith(b"\n"):
        raise ValueError("not a whole message")
    return json.loads(line)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """What two structures of JSON differ in, a few lines of "where: a, b"."""
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
