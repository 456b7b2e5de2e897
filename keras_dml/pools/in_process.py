"""The simplest pool: this process."""

import time
from collections.abc import Iterable, Iterator

from keras_dml.pools.base import Done, Pool, Result, Task, Work


class InProcess(Pool):
    """Runs tasks in this process, one after another."""

    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        do = work.start()
        for task in tasks:
            began = time.perf_counter()
            result = do(task)
            yield Done(task, result, time.perf_counter() - began)
