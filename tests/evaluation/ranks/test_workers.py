"""Panels of queries as tasks of a pool: the same digits."""

import errno

import numpy as np
import pytest

from keras_dml.embedding.workers import InProcess
from keras_dml.evaluation import Protocol, evaluate_embeddings, evaluation
from keras_dml.evaluation.ranks import search
from tests.evaluation.naive import assert_same

METRICS = ("recall@1", "map@r", "map", "ndcg@4", "macro/mrr")


@pytest.fixture
def small_panels(monkeypatch) -> list[slice]:
    """The tasks of a pool, which are small and done in this process."""
    monkeypatch.setattr(search, "_MANY", 50)
    monkeypatch.setattr(search, "_FEWEST", 7)
    monkeypatch.setattr(evaluation, "searching_pool", lambda *_: Backwards())
    found: list[slice] = []
    original = search.PanelSearch.of

    def counted(self, rows, *args, **kwargs):
        found.append(rows)
        return original(self, rows, *args, **kwargs)

    monkeypatch.setattr(search.PanelSearch, "of", counted)
    return found


class Backwards(InProcess):
    """The last task ends first."""

    def run(self, work, tasks):
        yield from super().run(work, list(tasks)[::-1])


def data(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Few different points, so that many scores are equal."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, count)
    x = rng.integers(-1, 2, (20, 4))[labels] + rng.integers(-1, 2, (count, 4))
    x[0] = 0
    return x.astype(np.float32), labels


OPTIONS = {
    "plain": {},
    "groups": {"exclude": np.arange(200) % 3},
    "prefixes": {"prefixes": (2, 3)},
    "protocol": {"protocol": Protocol(np.arange(150, 20, -1), np.arange(180))},
    "reranked": {"rerank": "query_expansion"},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_same_digits_by_panels(small_panels, monkeypatch, kind):
    x, labels = data()
    options = {"metrics": METRICS, **OPTIONS[kind]}
    found = evaluate_embeddings(x, labels, **options)
    assert len(small_panels) > 2
    monkeypatch.undo()
    assert_same(found, evaluate_embeddings(x, labels, **options))


@pytest.mark.parametrize("relevance", ["any", "all", "shared", "jaccard"])
def test_same_digits_of_several_labels(small_panels, monkeypatch, relevance):
    x, _ = data()
    tags = np.random.default_rng(1).random((200, 5)) < 0.3
    options = {"metrics": METRICS, "relevance": relevance}
    found = evaluate_embeddings(x, tags, **options)
    monkeypatch.undo()
    assert_same(found, evaluate_embeddings(x, tags, **options))


def test_same_digits_at_levels_with_a_gallery(small_panels, monkeypatch):
    x, labels = data()
    levels = {"fine": labels, "coarse": labels // 4}
    options = {
        "metrics": METRICS,
        "gallery": x[100:],
        "gallery_labels": {k: v[100:] for k, v in levels.items()},
    }
    given = x[:100], {k: v[:100] for k, v in levels.items()}
    found = evaluate_embeddings(*given, **options)
    monkeypatch.undo()
    assert_same(found, evaluate_embeddings(*given, **options))


def test_a_full_disk_is_named(monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match=r"Embeddings of 3,200 bytes.*No space"):
        evaluate_embeddings(*data(), workers=2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"distance": lambda x, y: -x @ y.T},
        {"rerank": "k_reciprocal"},
    ],
)
@pytest.mark.parametrize("asked", [{"workers": 2}, {"ray": True}])
def test_what_has_no_panels_is_refused(arguments, asked):
    x, labels = data()
    with pytest.raises(ValueError, match="`workers` and `ray` of evaluate_emb"):
        evaluate_embeddings(x, labels, **arguments, **asked)


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
def test_workers_are_a_number(number):
    with pytest.raises(ValueError, match="`workers` of evaluate_embeddings"):
        evaluate_embeddings(*data(), workers=number)


@pytest.mark.parametrize(
    "share, cores, expected",
    [("", 4, 4), ("1", 4, 1), ("3", 4, 3), ("8", 4, 4), ("0", 4, 1),
     ("two", 4, 4), ("", 99, search.MOST_THREADS)],
)  # fmt: skip
def test_threads_are_the_share_of_the_cores(
    monkeypatch, share, cores, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", share)
    monkeypatch.setattr(search, "usable_cores", lambda: cores)
    assert search._threads() == expected


def test_a_task_is_called_by_its_queries():
    found = search.PanelSearch.__new__(search.PanelSearch)
    assert found.called(slice(50, 100)) == "queries 50 to 99"


# Processes.


@pytest.fixture(scope="module")
def larger() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 250, 5000)
    x = rng.standard_normal((250, 16))[labels]
    return (x + rng.standard_normal(x.shape)).astype(np.float32), labels


@pytest.mark.slow
def test_same_digits_by_workers(larger):
    x, labels = larger
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    found = evaluate_embeddings(x, labels, metrics=METRICS, workers=2)
    assert_same(found, expected)


@pytest.mark.engines
def test_same_digits_by_ray(larger, tmp_path):
    pytest.importorskip("ray")
    x, labels = larger
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    given = {"metrics": METRICS, "workers": 2, "ray": True}
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert_same(evaluate_embeddings(mapped, labels, **given), expected)
