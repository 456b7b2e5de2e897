"""The choice of a pool."""

import sys

import pytest

from keras_dml.pools import InProcess, LocalWorkers, RayActors, pool_of


def test_this_process_does_it_unless_others_are_asked_for() -> None:
    assert isinstance(pool_of(), InProcess)
    assert isinstance(pool_of(1, ray=False), InProcess)
    pool = pool_of(3, logs="x")
    assert isinstance(pool, LocalWorkers)
    assert (pool.count, str(pool.logs)) == (3, "x")


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_counted(workers) -> None:
    with pytest.raises(ValueError, match="`workers` of pool_of must be an in"):
        pool_of(workers)


def test_ray_is_named_where_it_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "keras-dml\[ray\]"'):
        pool_of(ray=True)


@pytest.mark.engines
def test_ray_is_chosen() -> None:
    pytest.importorskip("ray")
    pool = pool_of(ray=True)
    assert isinstance(pool, RayActors)
    assert (pool.count, pool.address) == (None, "auto")
    there = pool_of(2, ray="host:6379")
    assert isinstance(there, RayActors)
    assert (there.count, there.address) == (2, "host:6379")


@pytest.mark.engines
@pytest.mark.parametrize("wrong", [{"count": 0}, {"cpus": 0}, {"gpus": -1}])
def test_arguments_of_actors_are_checked(wrong) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match="of RayActors must"):
        RayActors(**wrong)
