"""Tasks done in this process."""

import pytest

from keras_dml.pools import InProcess
from tests.pools.works import Squares


def test_tasks_are_done_in_order() -> None:
    done = list(InProcess().run(Squares(), iter([3, 1, 2])))
    assert [(x.task, x.result, x.worker) for x in done] == [
        (3, 9, 0), (1, 1, 0), (2, 4, 0)
    ]  # fmt: skip
    assert all(x.seconds >= 0 for x in done)


def test_tasks_are_taken_when_they_are_done() -> None:
    taken = []
    tasks = (taken.append(i) or i for i in range(5))
    run = InProcess().run(Squares(), tasks)
    assert next(run).result == 0
    assert taken == [0]


def test_errors_of_a_task_are_raised() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        list(InProcess().run(Squares(), [2, -1]))
