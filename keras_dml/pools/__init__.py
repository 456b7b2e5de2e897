"""Pools: workers that share the tasks of a large job."""

from keras_dml.pools._pool_of import pool_of
from keras_dml.pools.base import Done, Pool, Work
from keras_dml.pools.in_process import InProcess
from keras_dml.pools.local import LocalWorkers
from keras_dml.pools.on_ray import RayActors

__all__ = [
    "Done",
    "InProcess",
    "LocalWorkers",
    "Pool",
    "RayActors",
    "Work",
    "pool_of",
]
