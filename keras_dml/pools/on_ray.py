"""A pool of actors on a Ray cluster."""

import contextlib
import signal
import threading
from typing import Any

import keras

from keras_dml.pools.local import GOODBYE
from keras_dml.pools.ray_clusters import cluster_at
from keras_dml.pools.schedule import Crew, CrewPool, Lost
from keras_dml.pools.serving import Server
from keras_dml.pools.sharing import sharing
from keras_dml.utils.arguments import check_count, import_extra
from keras_dml.utils.provenance import usable_cores


class RayActors(CrewPool):
    """Runs tasks in actors on a Ray cluster; requires the extra `ray`.

    If an actor or a machine of the cluster dies or hangs, its tasks are given
    to others, up to three times. If this process dies, so do its actors. All
    machines need the same versions of this package and its dependencies; they
    import the modules needed to unpickle the work.

    Args:
        count: Number of actors. By default, one for each GPU of the cluster,
            or, if there are none, one for each CPU.
        address: Address of the cluster, as for `ray.init`. "local" starts Ray
            on this machine for the duration of a run. "auto" uses the cluster
            that this process is connected to, the one named by RAY_ADDRESS, or
            the one that `ray start` started on this machine; if there is none,
            it is the same as "local".
        timeout: As for `LocalWorkers`. An actor that cannot be placed in the
            cluster within ten minutes is treated like a hung one.
        cpus: CPUs of each actor, and number of its threads. By default, its
            share of this machine if Ray is started here, and 1 otherwise.
        gpus: GPUs of each actor; by default, 1 if the cluster has any.

    Raises:
        ValueError: If an argument is out of range.
        ImportError: If Ray is not installed.
        OSError: From `run`, if the cluster does not respond or has a different
            version of Ray or Python.
    """

    def __init__(
        self,
        count: int | None = None,
        address: str = "auto",
        timeout: float | None = None,
        cpus: int | None = None,
        gpus: float | None = None,
    ) -> None:
        super().__init__(timeout)
        self._ray = import_extra("RayActors", "ray", "ray")
        if count is not None:
            count = check_count("RayActors", "count", count)
        if cpus is not None:
            cpus = check_count("RayActors", "cpus", cpus)
        if gpus is not None and not gpus >= 0:
            raise ValueError(
                "`gpus` of RayActors must not be negative. Received: "
                f"gpus={gpus!r}."
            )
        self.count = count
        self.cpus = cpus
        self.address = address
        self.gpus = gpus

    def _crew(self, order: bytes) -> tuple[Crew, int]:
        with contextlib.ExitStack() as undo:
            cpus = self._connect(undo)
            there = self._ray.cluster_resources()
            gpus = self.gpus
            if gpus is None:
                gpus = 1.0 if there.get("GPU") else 0.0
            kind, each = ("GPU", gpus) if gpus else ("CPU", cpus)
            places = int(there.get(kind, 0) / each)
            options = {
                "num_cpus": cpus,
                "num_gpus": gpus,
                "scheduling_strategy": "SPREAD",
                "runtime_env": {"env_vars": _environment(cpus)},
            }
            crew = _Actors(self._ray, order, options)
            crew.leave = undo.pop_all()
            return crew, self.count or max(1, places)

    def _connect(self, undo: contextlib.ExitStack) -> int:
        """Connects to a cluster; returns the CPUs of each actor."""
        if self._ray.is_initialized():
            return self.cpus or 1
        address = cluster_at(self.address)
        if address is None:
            undo.callback(self._ray.shutdown)
            cores = usable_cores()
            cpus = self.cpus or max(1, cores // (self.count or cores))
            self._init(
                "local",
                num_cpus=max(cores, cpus * (self.count or 1)),
                include_dashboard=False,
            )
            return cpus
        undo.callback(self._ray.shutdown)
        try:
            self._init(address)
        except Exception as error:  # Of several kinds, RuntimeError one.
            raise OSError(
                f"The Ray cluster at {address} cannot be joined: {error}"
            ) from error
        return self.cpus or 1

    def _init(self, address: str, **options: Any) -> None:
        quiet = {"log_to_driver": False, "logging_level": "error"}
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(address, **quiet, **options)
        finally:
            if in_main:  # Ray sets a handler of its own.
                signal.signal(signal.SIGTERM, before)


class _Actors(Crew):
    """Actors; `leave` is what is left to do when they have ended."""

    def __init__(self, ray: Any, order: bytes, options: dict[str, Any]) -> None:
        self.leave = contextlib.ExitStack()
        self._ray = ray
        self._kind = ray.remote(Server).options(**options)
        self._order = ray.put(order)
        self._all: set[Any] = set()
        self._open: dict[Any, Any] = {}  # The actors, by what they are at.

    def start(self, number: int) -> Any:
        actor = self._kind.remote(self._order)
        self._all.add(actor)
        self._open[actor.start.remote()] = actor
        return actor

    def give(self, worker: Any, task: bytes) -> None:
        self._open[worker.do.remote(task)] = worker

    def kill(self, worker: Any) -> None:
        self._all.discard(worker)
        self._open = {x: y for x, y in self._open.items() if y != worker}
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker)

    def answer(self, timeout: float) -> tuple[Any, bytes | Lost] | None:
        ready, _ = self._ray.wait(list(self._open), timeout=timeout)
        if not ready:
            return None
        worker = self._open.pop(ready[0])
        try:
            return worker, self._ray.get(ready[0])
        except self._ray.exceptions.RayError as error:
            self.kill(worker)
            return worker, Lost(f"was lost by Ray: {error}")

    def end(self) -> None:
        ends = [x.__ray_terminate__.remote() for x in self._all]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=GOODBYE)

    def close(self) -> None:
        for worker in list(self._all):
            self.kill(worker)
        self.leave.close()


def _environment(cpus: int) -> dict[str, str]:
    """What actors have in their environment, on whatever machine."""
    return {**sharing(cpus), "KERAS_BACKEND": keras.config.backend()}
