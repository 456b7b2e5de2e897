"""A pool of actors on a Ray cluster."""

import contextlib
import os
import signal
import socket
import threading
from concurrent.futures import Future
from typing import Any

import keras

from keras_dml.embedding.workers import (
    Begin,
    InWorker,
    Lost,
    Worker,
    WorkerPool,
    sharing,
)
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.provenance import usable_cores

_CONNECT_SECONDS = 5.0


class RayActors(WorkerPool):
    """Runs tasks in actors on a Ray cluster; requires the extra `ray`.

    If an actor or a machine of the cluster dies, its tasks are given to others,
    up to three times. If this process dies, so do its actors. All machines need
    the same versions of this package and its dependencies; they import the
    modules needed to unpickle the work.

    Args:
        count: Number of actors. By default, one for each GPU of the cluster,
            or, if there are none, one for each CPU.
        address: Address of the cluster, as for `ray.init`. "local" starts Ray
            on this machine for the duration of a run. "auto" uses the cluster
            that this process is connected to, the one named by RAY_ADDRESS, or
            the one that `ray start` started on this machine; if there is none,
            it is the same as "local".
        gpus: GPUs of each actor; by default, 1 if the cluster has any.

    Raises:
        ImportError: If Ray is not installed.
        OSError: From `run`, if the cluster does not respond or has a different
            version of Ray or Python.
    """

    def __init__(
        self,
        count: int | None = None,
        address: str = "auto",
        gpus: float | None = None,
    ) -> None:
        self._ray = import_extra("RayActors", "ray", "ray")
        self.count = count
        self.address = address
        self.gpus = gpus

    def _open(
        self, work: bytes, undo: contextlib.ExitStack
    ) -> tuple[Begin, int]:
        cpus = self._connect(undo)
        there = self._ray.cluster_resources()
        gpus = self.gpus
        if gpus is None:
            gpus = 1.0 if there.get("GPU") else 0.0
        kind, each = ("GPU", gpus) if gpus else ("CPU", cpus)
        places = int(there.get(kind, 0) / each)
        # On whatever machine.
        environment = {**sharing(cpus), "KERAS_BACKEND": keras.config.backend()}
        actor = self._ray.remote(InWorker).options(
            num_cpus=cpus,
            num_gpus=gpus,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
        )
        content = self._ray.put(work)

        def begin(number: int) -> Worker:
            return _Actor(self._ray, actor.remote(content), number)

        return begin, self.count or max(1, places)

    def _connect(self, undo: contextlib.ExitStack) -> int:
        """Connects to a cluster; returns the CPUs of each actor."""
        if self._ray.is_initialized():
            return 1
        undo.callback(self._ray.shutdown)
        address = _cluster_at(self.address)
        if address is None:
            cores = usable_cores()
            count = self.count or cores
            cpus = max(1, cores // count)
            places = max(cores, cpus * count)
            self._init("local", num_cpus=places, include_dashboard=False)
            return cpus
        try:
            self._init(address)
        except Exception as error:  # Of several kinds, RuntimeError one.
            raise OSError(
                f"The Ray cluster at {address} cannot be joined: {error}"
            ) from error
        return 1

    def _init(self, address: str, **options: Any) -> None:
        quiet = {"log_to_driver": False, "logging_level": "error"}
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(address, **quiet, **options)
        finally:
            if in_main:  # Ray sets a handler of its own.
                signal.signal(signal.SIGTERM, before)


class _Actor(Worker):
    def __init__(self, ray: Any, actor: Any, number: int) -> None:
        self._ray, self._actor, self.number = ray, actor, number

    def do(self, task: bytes | None, name: str) -> Future[Any]:
        future: Future[Any] = self._actor.do.remote(task, name).future()
        return future

    def answer(self, future: Future[Any]) -> bytes:
        try:
            answer: bytes = future.result()
        except self._ray.exceptions.RayError as error:
            raise Lost(f"was lost by Ray: {error}") from error
        return answer

    def end(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)


def _cluster_at(address: str) -> str | None:
    """The address of the cluster to join; None if Ray is to start here.

    Ray itself waits for a quarter of an hour if no cluster responds.
    """
    if address == "local":
        return None
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        from ray._private.services import find_bootstrap_address

        # A cluster that was killed is still named there.
        latest = find_bootstrap_address(None)
        return latest if latest and _is_open(latest) else None
    if not _is_open(address):
        raise OSError(
            f"No Ray cluster answers at {address}. An address is HOST:PORT, as "
            '`ray start --head` shows it; "local" starts Ray on this machine.'
        )
    return address


def _is_open(address: str) -> bool:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False
