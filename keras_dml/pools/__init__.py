"""Pools: workers that share the tasks of a large job.

`embed_shards` and `evaluate` divide their jobs into tasks, and a pool does them
in this process (`InProcess`), in other processes of this machine
(`LocalWorkers`), or on a Ray cluster (`RayActors`); `pool_of` chooses. Start
with `base`, the interface. `worker_pool` assigns tasks to workers and repeats
those of workers that died; `worker` is what runs in a worker. Pools import
nothing but `utils`.
"""

from keras_dml.pools._pool_of import pool_of
from keras_dml.pools.base import Done, InProcess, Pool, Work
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
