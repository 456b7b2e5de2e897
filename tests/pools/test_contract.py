"""What holds for every pool."""

from collections.abc import Callable

import pytest

from keras_dml.pools import InProcess, LocalWorkers, Pool, RayActors
from tests.pools.works import Raises, Slow, Squares, StartRaises


def actors() -> Pool:
    pytest.importorskip("ray")
    return RayActors(2, "local")


@pytest.fixture(
    params=[
        InProcess,
        pytest.param(LocalWorkers, marks=pytest.mark.slow),
        pytest.param(RayActors, marks=[pytest.mark.engines, pytest.mark.slow]),
    ]
)
def make(request: pytest.FixtureRequest) -> Callable[[], Pool]:
    if request.param is LocalWorkers:
        request.getfixturevalue("light_package")
        return lambda: LocalWorkers(2)
    return actors if request.param is RayActors else InProcess


def test_each_task_is_done_once(make: Callable[[], Pool], tmp_path) -> None:
    taken = []
    tasks = (taken.append(i) or i for i in range(20))
    run = make().run(Slow(tmp_path, seconds=0.01), tasks)
    assert taken == []
    done = [next(run)]
    assert len(taken) <= 6
    done += run
    assert sorted((x.task, x.result) for x in done) == [
        (i, i**2) for i in range(20)
    ]
    assert all(0.01 <= x.seconds < 5 and x.worker in (0, 1) for x in done)
    begun = sum((x.read_text().split() for x in tmp_path.iterdir()), [])
    assert sorted(map(int, begun)) == list(range(20))
    # It can be used again, and be left early.
    again = make().run(Squares(), iter([7, 8, 9]))
    assert next(again).result in (49, 64)
    again.close()
    assert list(make().run(Squares(), [])) == []


def test_errors_that_users_can_mend(make: Callable[[], Pool]) -> None:
    with pytest.raises(ValueError) as caught:
        list(make().run(Squares(), [2, -1]))
    assert str(caught.value) == "-1 is negative"
    with pytest.raises(OSError) as full:
        list(make().run(Raises(), ["unpicklable OSError"]))
    assert str(full.value) == "the disk is full"
    with pytest.raises(ImportError) as missing:
        list(make().run(StartRaises(), [1]))
    assert str(missing.value) == "no module that squares"


def test_this_process_does_tasks_in_order() -> None:
    run = InProcess().run(Squares(), iter([3, 1, 2]))
    assert [(x.task, x.result, x.worker) for x in run] == [
        (3, 9, 0), (1, 1, 0), (2, 4, 0)
    ]  # fmt: skip
