"""Pools: where the tasks of a long piece of work are done."""

from keras_dml.pools.base import Done, Pool, Work
from keras_dml.pools.in_process import InProcess
from keras_dml.pools.local import LocalWorkers

__all__ = ["Done", "InProcess", "LocalWorkers", "Pool", "Work"]
