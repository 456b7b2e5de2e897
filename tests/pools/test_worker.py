"""Tasks and work as pickles, and errors with their traceback."""

import pytest

from keras_dml.pools import LocalWorkers
from keras_dml.pools.worker import Worker, attempts, pickled_work
from tests.pools.works import Squares


def test_errors_of_a_task_say_where_they_come_from() -> None:
    work = Squares()
    worker = Worker(pickled_work(work))
    good, bad = attempts(work, [2, -1])
    done = good.done(worker.do(good.content, good.name))
    assert (done.task, done.result) == (2, 4)
    with pytest.raises(ValueError) as caught:
        bad.done(worker.do(bad.content, bad.name))
    assert str(caught.value) == "-1 is negative"
    note = "\n".join(caught.value.__notes__)
    assert note.startswith("A worker, at number -1, raised it:\nTraceback")
    assert "_square" in note


def test_tasks_must_be_picklable() -> None:
    with pytest.raises(ValueError, match="number <.*a task of a pool, must"):
        next(attempts(Squares(), [lambda: None]))


def test_work_of_a_script_is_refused() -> None:
    kind = type("Mine", (Squares,), {"__module__": "__main__"})
    with pytest.raises(ValueError, match="defined in the running script. Move"):
        list(LocalWorkers(1).run(kind(), [1]))


def test_the_timeout_is_checked() -> None:
    with pytest.raises(ValueError, match="`timeout` of LocalWorkers must be"):
        LocalWorkers(1, timeout=0)
