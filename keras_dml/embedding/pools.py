"""The choice of a pool: this process, others of this machine, or Ray."""

from keras_dml.embedding.local import LocalWorkers
from keras_dml.embedding.on_ray import RayActors
from keras_dml.embedding.workers import InProcess, Pool


def pool_of(
    workers: int | None = None,
    ray: str | bool | None = None,
    gpus: float | None = None,
) -> Pool:
    """Creates a pool.

    Args:
        workers: Number of workers. By default, only this process, or, with Ray,
            one per GPU or CPU of the cluster.
        ray: Whether to run tasks on a Ray cluster, or the address of the
            cluster; see `RayActors`.
        gpus: GPUs of each actor of Ray; by default, 1 if the cluster has any.

    Raises:
        ImportError: If Ray is requested but not installed.
    """
    if ray:
        return RayActors(workers, "auto" if ray is True else ray, gpus)
    return InProcess() if workers in (None, 1) else LocalWorkers(workers or 1)
