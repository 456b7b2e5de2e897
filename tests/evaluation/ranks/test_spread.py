"""Panels as tasks of a pool, kept in a folder: the same digits, once each."""

import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_128_digest

from keras_dml.evaluation import Protocol, evaluate_embeddings
from keras_dml.evaluation.ranks import kept, panels, spread
from keras_dml.pools import InProcess

METRICS = ("recall@1", "map@r", "map", "ndcg@4", "macro/mrr")


@pytest.fixture(autouse=True)
def small_panels(monkeypatch) -> None:
    monkeypatch.setattr(spread, "_MANY", 50)
    monkeypatch.setattr(spread, "_FEWEST", 7)


def data(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Few different points, so that many scores are equal."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, count)
    x = rng.integers(-1, 2, (20, 4))[labels] + rng.integers(-1, 2, (count, 4))
    x[0] = 0
    return x.astype(np.float32), labels


def assert_same(first, second) -> None:
    assert dict(first) == dict(second)
    for name, values in first.per_query.items():
        np.testing.assert_array_equal(values, second.per_query[name])
    np.testing.assert_array_equal(first.query_rows, second.query_rows)


def panel_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("panel-*.ranks"))


@pytest.fixture
def searched(monkeypatch) -> list[slice]:
    """The panels that are searched for."""
    found: list[slice] = []
    original = panels.PanelSearch.of

    def counted(self, rows, *args, **kwargs):
        found.append(rows)
        return original(self, rows, *args, **kwargs)

    monkeypatch.setattr(panels.PanelSearch, "of", counted)
    return found


OPTIONS = {
    "plain": {},
    "euclidean": {"distance": "euclidean"},
    "dot": {"distance": "dot"},
    "groups": {"exclude": np.arange(200) % 3},
    "prefixes": {"prefixes": (2, 3)},
    "protocol": {"protocol": Protocol(np.arange(150, 20, -1), np.arange(180))},
    "draws": {"protocol": "official"},
    "reranked": {"rerank": "query_expansion"},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_same_digits_with_a_checkpoint(tmp_path, searched, kind):
    x, labels = data()
    options = {"metrics": METRICS, **OPTIONS[kind]}
    expected = evaluate_embeddings(x, labels, **options)
    searched.clear()
    found = evaluate_embeddings(x, labels, checkpoint=tmp_path, **options)
    assert_same(found, expected)
    assert len(searched) == len(panel_files(tmp_path)) > 2
    # All are there.
    searched.clear()
    again = evaluate_embeddings(x, labels, checkpoint=tmp_path, **options)
    assert_same(again, expected)
    assert not searched


@pytest.mark.parametrize("relevance", ["any", "all", "shared", "jaccard"])
def test_same_digits_of_several_labels(tmp_path, relevance):
    x, _ = data()
    tags = np.random.default_rng(1).random((200, 5)) < 0.3
    options = {"metrics": METRICS, "relevance": relevance}
    expected = evaluate_embeddings(x, tags, **options)
    found = evaluate_embeddings(x, tags, checkpoint=tmp_path, **options)
    assert_same(found, expected)


def test_same_digits_at_levels_with_a_gallery(tmp_path):
    x, labels = data()
    levels = {"fine": labels, "coarse": labels // 4}
    options = {
        "metrics": METRICS,
        "gallery": x[100:],
        "gallery_labels": {k: v[100:] for k, v in levels.items()},
    }
    given = x[:100], {k: v[:100] for k, v in levels.items()}
    expected = evaluate_embeddings(*given, **options)
    found = evaluate_embeddings(*given, checkpoint=tmp_path, **options)
    assert_same(found, expected)


def test_what_was_done_is_not_done_again(tmp_path, searched):
    x, labels = data()
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    given = {"metrics": METRICS, "checkpoint": tmp_path}
    evaluate_embeddings(x, labels, **given)
    lost = panel_files(tmp_path)[1]
    lost.unlink()
    searched.clear()
    # Whatever memory and workers there are now.
    found = evaluate_embeddings(x, labels, memory="1MB", **given)
    assert_same(found, expected)
    assert searched == [slice(50, 100)]


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_another(path: Path) -> None:
    content = io.BytesIO()
    np.savez(content, search=np.array("another"), count=np.array(0))
    content = content.getvalue()
    path.write_bytes(xxh3_128_digest(content) + content)


@pytest.mark.parametrize("harm", [damaged, cut_off, emptied, of_another])
def test_a_damaged_panel_is_done_again(tmp_path, searched, caplog, harm):
    x, labels = data()
    given = {"metrics": METRICS, "checkpoint": tmp_path}
    expected = evaluate_embeddings(x, labels, **given)
    harm(panel_files(tmp_path)[2])
    searched.clear()
    assert_same(evaluate_embeddings(x, labels, **given), expected)
    assert searched == [slice(100, 150)]
    assert "panel-0000000100-0000000150.ranks is damaged" in caplog.text


def test_another_evaluation_is_refused(tmp_path):
    x, labels = data()
    given = {"metrics": "map@r", "checkpoint": tmp_path}
    evaluate_embeddings(x, labels, **given)
    before = {path: path.read_bytes() for path in panel_files(tmp_path)}
    moved, others = x.copy(), labels.copy()
    moved[7, 2] += 1e-6
    others[7] += 1
    for arguments in (
        {"embeddings": moved},
        {"labels": others},
        {"distance": "dot"},
        {"metrics": "map"},
        {"exclude": labels % 2},
        {"gallery": x[:-1], "gallery_labels": labels[:-1]},
        {"protocol": Protocol(np.arange(100))},
        {"relevance": "shared", "labels": np.eye(20)[labels]},
    ):
        options = {"embeddings": x, "labels": labels, **given, **arguments}
        with pytest.raises(ValueError, match="`checkpoint` of evaluate_emb"):
            evaluate_embeddings(**options)
    assert before == {p: p.read_bytes() for p in panel_files(tmp_path)}
    # Other metrics of the same ranks are measured.
    evaluate_embeddings(x, labels, **{**given, "metrics": "r_precision"})


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 99}'])
def test_a_plan_that_cannot_be_read_is_refused(tmp_path, content):
    x, labels = data()
    evaluate_embeddings(x, labels, checkpoint=tmp_path)
    (plan,) = tmp_path.rglob(kept.PLAN)
    plan.write_text(content)
    with pytest.raises(ValueError, match="`checkpoint` of evaluate_embedding"):
        evaluate_embeddings(x, labels, checkpoint=tmp_path)


def test_one_evaluation_at_a_time(tmp_path, monkeypatch):
    x, labels = data()
    original = InProcess.run

    def run(self, work, tasks):
        busy = "Another evaluation is using"
        with pytest.raises(BlockingIOError, match=busy):
            evaluate_embeddings(x, labels, checkpoint=tmp_path)
        return original(self, work, tasks)

    monkeypatch.setattr(InProcess, "run", run)
    evaluate_embeddings(x, labels, checkpoint=tmp_path)


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    x, labels = data()

    def full(path, content=None):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    evaluate_embeddings(x, labels, checkpoint=tmp_path)
    panel_files(tmp_path)[0].unlink()
    monkeypatch.setattr(kept, "write_atomically", full)
    with pytest.raises(OSError, match=r"ranks of a panel cannot .* No space"):
        evaluate_embeddings(x, labels, checkpoint=tmp_path)
    monkeypatch.setattr(np, "save", lambda path, x: full(path))
    with pytest.raises(OSError, match=r"Embeddings of 3,200 bytes.*No space"):
        evaluate_embeddings(x, labels, workers=2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"distance": lambda x, y: -x @ y.T},
        {"rerank": "k_reciprocal"},
    ],
)
@pytest.mark.parametrize("where", ["workers", "checkpoint"])
def test_what_has_no_panels_is_refused(tmp_path, arguments, where):
    x, labels = data()
    asked = {"workers": 2} if where == "workers" else {"checkpoint": tmp_path}
    with pytest.raises(ValueError, match="`workers`, `ray` and `checkpoint`"):
        evaluate_embeddings(x, labels, **arguments, **asked)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_workers_are_a_number(workers):
    with pytest.raises(ValueError, match="`workers` of evaluate_embeddings"):
        evaluate_embeddings(*data(), workers=workers)


# Processes.


@pytest.fixture
def as_shipped(monkeypatch) -> None:
    """Panels as large as they are, which other processes know of."""
    monkeypatch.undo()


@pytest.fixture(scope="module")
def larger() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 250, 5000)
    x = rng.standard_normal((250, 16))[labels]
    return (x + rng.standard_normal(x.shape)).astype(np.float32), labels


@pytest.mark.slow
def test_same_digits_by_workers(as_shipped, larger, tmp_path):
    x, labels = larger
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    found = evaluate_embeddings(x, labels, metrics=METRICS, workers=2)
    assert_same(found, expected)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    given = {"metrics": METRICS, "workers": 2, "checkpoint": tmp_path}
    assert_same(evaluate_embeddings(mapped, labels, **given), expected)
    assert len(panel_files(tmp_path)) > 2


@pytest.mark.slow
def test_a_killed_worker_costs_its_panel(as_shipped, larger, monkeypatch):
    x, labels = larger
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    write, killed = kept.KeptPanels.write, []

    def write_and_kill(self, rows, found):
        write(self, rows, found)
        if not killed:
            killed.append(children()[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(kept.KeptPanels, "write", write_and_kill)
    found = evaluate_embeddings(x, labels, metrics=METRICS, workers=2)
    assert killed
    assert_same(found, expected)


def children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(number) for number in path.read_text().split()]


DRIVER = """
    import sys
    import numpy as np
    from keras_dml.evaluation import evaluate_embeddings

    (folder,) = sys.argv[1:]
    x = np.load(f"{folder}/x.npy", mmap_mode="r")
    results = evaluate_embeddings(
        x,
        np.load(f"{folder}/labels.npy"),
        workers=2,
        checkpoint=f"{folder}/panels",
    )
"""


@pytest.mark.slow
def test_a_killed_driver_goes_on(as_shipped, larger, tmp_path):
    x, labels = larger
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", labels)
    script = textwrap.dedent(DRIVER)
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(command)
    try:
        wait_for(lambda: panel_files(tmp_path) or process.poll() is not None)
        process.kill()
    finally:
        process.wait()
    there = {path: path.stat().st_mtime_ns for path in panel_files(tmp_path)}
    assert there
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    given = {"workers": 2, "checkpoint": tmp_path / "panels"}
    found = evaluate_embeddings(mapped, labels, **given)
    assert_same(found, evaluate_embeddings(x, labels))
    now = {path: path.stat().st_mtime_ns for path in panel_files(tmp_path)}
    assert {path: now[path] for path in there} == there


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.engines
def test_same_digits_by_ray(as_shipped, larger, tmp_path):
    pytest.importorskip("ray")
    x, labels = larger
    expected = evaluate_embeddings(x, labels, metrics=METRICS)
    given = {"metrics": METRICS, "workers": 2, "ray": True}
    assert_same(evaluate_embeddings(x, labels, **given), expected)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = evaluate_embeddings(mapped, labels, checkpoint=tmp_path, **given)
    assert_same(found, expected)
