"""The choice of a pool."""

from pathlib import Path

from keras_dml.pools.base import Pool
from keras_dml.pools.in_process import InProcess
from keras_dml.pools.local import LocalWorkers
from keras_dml.pools.on_ray import RayActors
from keras_dml.utils.arguments import check_count


def pool_of(
    workers: int | None = None,
    ray: str | bool | None = None,
    timeout: float | None = None,
    logs: str | Path | None = None,
) -> Pool:
    """The pool that is asked for.

    Args:
        workers: How many there are. None is one, this process, and with Ray
            as many as the cluster has GPUs or CPUs.
        ray: Whether Ray decides where tasks are done, or the address of its
            cluster; see `RayActors`.
        timeout: Seconds that a task may take before its worker counts as
            hanging; see `LocalWorkers`. This process waits for itself.
        logs: A folder for what local workers print; see `LocalWorkers`.

    Raises:
        ValueError: If an argument is out of range.
        ImportError: If Ray is asked for and not installed.
    """
    if workers is not None:
        workers = check_count("pool_of", "workers", workers)
    if ray:
        return RayActors(workers, "auto" if ray is True else ray, timeout)
    if workers in (None, 1):
        return InProcess()
    return LocalWorkers(workers or 1, timeout, logs)
