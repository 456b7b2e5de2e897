"""The choice of a pool."""

from pathlib import Path

from keras_dml.pools.base import InProcess, Pool
from keras_dml.pools.local import LocalWorkers
from keras_dml.pools.on_ray import RayActors
from keras_dml.utils.arguments import check_count


def pool_of(
    workers: int | None = None,
    ray: str | bool | None = None,
    logs: str | Path | None = None,
) -> Pool:
    """Creates a pool.

    Args:
        workers: Number of workers. By default, only this process, or, with Ray,
            one per GPU or CPU of the cluster.
        ray: Whether to run tasks on a Ray cluster, or the address of the
            cluster; see `RayActors`.
        logs: A folder for the output of local workers; see `LocalWorkers`.

    Raises:
        ValueError: If an argument is out of range.
        ImportError: If Ray is requested but not installed.
    """
    if workers is not None:
        workers = check_count("pool_of", "workers", workers)
    if ray:
        return RayActors(workers, "auto" if ray is True else ray)
    if workers in (None, 1):
        return InProcess()
    return LocalWorkers(workers or 1, logs)
