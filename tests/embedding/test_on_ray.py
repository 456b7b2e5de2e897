"""Actors of Ray: clusters, actors, machines and drivers that go away."""

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from keras_dml.embedding.on_ray import RayActors
from tests.embedding.processes import driver, wait_for
from tests.embedding.works import Dies, Raises, Slow, Squares

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.engines, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two machines of a CPU each, which no process is in."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    started.add_node(num_cpus=1)
    yield started
    started.shutdown()


@pytest.fixture(autouse=True, scope="module")
def sigterm() -> Iterator[None]:
    """Clusters that are made here handle it."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture(autouse=True)
def no_ray_stays() -> Iterator[None]:
    yield
    assert not ray.is_initialized()
    wait_for(lambda: not actors())


def actors() -> list[psutil.Process]:
    """Actors of any cluster on this machine that live."""
    return [
        x
        for x in psutil.process_iter(["cmdline", "status"])
        if "ray::InWorker" in " ".join(x.info["cmdline"] or ())
        and x.info["status"] != psutil.STATUS_ZOMBIE
    ]


def results(pool: RayActors, work: Any, tasks: Any) -> list[Any]:
    return sorted(result for _, result in pool.run(work, tasks))


SQUARES = [0, 1, 4, 9, 16, 25]


def test_ray_starts_here_where_it_is_not(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(
        "keras_dml.embedding.on_ray._is_open", lambda address: False
    )
    run = RayActors(2).run(Slow(tmp_path, together=2), range(30))
    done = [next(run)]
    assert ray.is_initialized()
    done += run
    assert dict(done) == {i: i**2 for i in range(30)}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cluster_that_is_there_is_joined(cluster, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    handler = signal.getsignal(signal.SIGTERM)
    run = RayActors().run(Squares(), range(6))
    first = next(run)
    assert ray.get_runtime_context().gcs_address == cluster.address
    assert signal.getsignal(signal.SIGTERM) is handler
    assert sorted(x for _, x in [first, *run]) == SQUARES


def test_ray_of_this_process_is_used_and_left_alone(cluster) -> None:
    ray.init(cluster.address, log_to_driver=False)
    try:
        assert results(RayActors(1), Squares(), range(6)) == SQUARES
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_actors_have_the_threads_of_their_cpus(cluster, monkeypatch) -> None:
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    pool = RayActors(1, cluster.address)
    assert results(pool, Raises(), ["threads"]) == ["1"]


def test_a_task_that_kills_every_actor_is_named(cluster, tmp_path) -> None:
    pool = RayActors(2, cluster.address)
    with pytest.raises(
        RuntimeError, match="(?s)3 workers were lost at number 3; .*by Ray:"
    ):
        results(pool, Dies(tmp_path, times=9), range(6))


def test_a_machine_that_is_killed(tmp_path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        lost = cluster.add_node(num_cpus=1)
        pool = RayActors(2, cluster.address)
        run = pool.run(Slow(tmp_path, seconds=0.5, together=2), range(60))
        done = [next(run) for _ in range(10)]
        cluster.remove_node(lost, allow_graceful=False)
        done += run
        assert dict(done) == {i: i**2 for i in range(60)}
        begun = sum((x.read_text().split() for x in tmp_path.iterdir()), [])
        assert len(begun) <= 61
    finally:
        cluster.shutdown()


DRIVER = """
from pathlib import Path
from keras_dml.embedding.on_ray import RayActors
from tests.embedding.works import Slow
for done in RayActors(2, {address!r}).run(Slow(Path({folder!r}), 60), range(9)):
    print(done)
"""


@pytest.mark.parametrize(
    ("number", "own"), [(signal.SIGTERM, False), (signal.SIGKILL, True)]
)
def test_actors_end_with_their_driver(cluster, tmp_path, number, own) -> None:
    """And the Ray that it started; a cluster that was there goes on."""
    address = "local" if own else cluster.address
    code = DRIVER.format(folder=str(tmp_path), address=address)
    with driver(code) as process:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2, 300)
        servers = psutil.Process(process.pid).children(recursive=True)
        assert bool(servers) == own
        process.send_signal(number)
        process.wait(30)
    psutil.wait_procs(servers, timeout=20)
    assert not [x for x in servers if x.is_running()]
    wait_for(lambda: not actors())
    if not own:
        pool = RayActors(2, cluster.address)
        assert results(pool, Squares(), range(6)) == SQUARES


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere", "a:b", "[::"])
def test_a_cluster_that_is_not_there(address) -> None:
    with pytest.raises(OSError, match="No Ray cluster answers at"):
        results(RayActors(1, address), Squares(), range(6))
