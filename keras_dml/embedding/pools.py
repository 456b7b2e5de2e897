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
        ray, gpus: Whether, and at which address, Ray is asked; see `RayActors`.

    Raises:
        ImportError: If Ray is requested but not installed.
    """
    if ray:
        return RayActors(workers, "auto" if ray is True else ray, gpus)
    return InProcess() if workers in (None, 1) else LocalWorkers(workers or 1)
