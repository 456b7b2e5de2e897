"""Evaluation and K-means of more than memory is to hold, from shards.

Run from the root of the project:

    python tests/benchmarks/out_of_memory.py             # 1,000,000 rows
    python tests/benchmarks/out_of_memory.py --quick     # a fiftieth; seconds
    python tests/benchmarks/out_of_memory.py --only clusters --dim 512

Memory is the highest value of what this process holds for itself (RssAnon),
looked at every 20 ms; pages of mapped files, which the system takes back when
it needs them, are not part of it, and what imports take is. Linux only.
Embeddings lie around the centers of their classes.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_dml.embedding import EmbeddingShards, write_shards
from keras_dml.evaluation import Protocol, evaluate_embeddings, kmeans
from keras_dml.utils.vectors import blocks

METRICS = ("recall@1", "recall@10", "recall@100", "r_precision", "map@r")
STATUS = Path("/proc/self/status")


def private_memory() -> int:
    """Bytes that this process holds."""
    lines = [x.split() for x in STATUS.read_text().splitlines()]
    return sum(int(x[1]) for x in lines if x and x[0] == "RssAnon:") * 1024


class Cost:
    """What a block takes: seconds, CPU seconds, and memory at its peak."""

    def __enter__(self) -> "Cost":
        self.peak = self.before = private_memory()
        self._end = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        self._start, self._cpu_start = time.perf_counter(), time.process_time()
        return self

    def _look(self) -> None:
        while not self._end.wait(0.02):
            self.peak = max(self.peak, private_memory())

    def __exit__(self, *error: Any) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = time.process_time() - self._cpu_start
        self._end.set()
        self._watch.join()

    def __str__(self) -> str:
        return (
            f"{self.seconds:8.1f} s {self.cpu_seconds:8.1f} CPU s, memory "
            f"{self.before / 2**20:6.0f} → {self.peak / 2**20:6.0f} MB"
        )


def planted(
    folder: Path, count: int, dim: int, classes: int, signal: float
) -> tuple[np.memmap, np.ndarray]:
    """Points around the centers of their classes, in a file."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    centers = signal * rng.standard_normal((classes, dim), np.float32)
    path = folder / "embeddings.npy"
    x = np.lib.format.open_memmap(path, "w+", np.float32, (count, dim))
    for rows in blocks(count, 2**22 // dim):
        size = rows.stop - rows.start, dim
        x[rows] = centers[labels[rows]] + rng.standard_normal(size, np.float32)
    x.flush()
    return np.load(path, mmap_mode="r"), labels


def evaluation(folder: Path, count: int, dim: int, queries: int) -> None:
    x, labels = planted(folder, count, dim, max(2, count // 20), 0.6)
    shards = folder / "shards"
    with Cost() as cost:
        write_shards(x, shards, labels)
    print(f"{count:,} × {dim} into shards{'':<25}{cost}", flush=True)
    rows = np.random.default_rng(1).choice(count, queries, replace=False)
    with Cost() as cost:
        results = evaluate_embeddings(
            EmbeddingShards(shards),
            metrics=METRICS,
            protocol=Protocol(queries=np.sort(rows)),
            memory="256MB",
        )
    pairs = queries * count
    print(
        f"{queries:,} queries {cost}, "
        f"{1e9 * cost.seconds / pairs:.2f} ns a pair "
        f"({1e9 * cost.cpu_seconds / pairs:.2f} CPU): all queries "
        f"{cost.seconds * count / queries / 3600:.2f} h\n{results}",
        flush=True,
    )


def clusters(folder: Path, count: int, dim: int, number: int) -> None:
    x, labels = planted(folder, count, dim, number, 0.45)
    samples = [100 * number, 256 * number, 1000 * number]
    ways: dict[str, Callable[[], np.ndarray]] = {
        "all points": lambda: kmeans(x, number),
        "all points, another seed": lambda: kmeans(x, number, seed=1),
        **{
            f"sample of {n:,}": lambda n=n: kmeans(x, number, sample=n)
            for n in samples
            if n < count
        },
        "MiniBatchKMeans, 1 epoch": lambda: mini_batches(x, number, "random"),
        "… from k-means++": lambda: mini_batches(x, number, "k-means++"),
    }
    print(f"{count:,} × {dim} into {number:,} clusters", flush=True)
    first = None
    for name, way in ways.items():
        with Cost() as cost:
            found = way()
        inertia, nmi = quality(x, found, labels)
        first = first or inertia
        print(
            f"{name:<26}{cost}, inertia × {inertia / first:.4f}, NMI {nmi:.3f}",
            flush=True,
        )


def mini_batches(x: np.ndarray, number: int, init: str) -> np.ndarray:
    """scikit-learn's, whose batches are blocks in random order."""
    from sklearn.cluster import MiniBatchKMeans

    parts = blocks(len(x), max(10_000, 3 * number))
    model = MiniBatchKMeans(number, init=init, random_state=0, n_init=1)
    for part in np.random.default_rng(0).permutation(max(1, len(parts) - 1)):
        model.partial_fit(x[parts[part]])
    return np.concatenate([model.predict(x[rows]) for rows in parts])


def quality(
    x: np.ndarray, found: np.ndarray, labels: np.ndarray
) -> tuple[float, float]:
    """Inertia, from the means of the clusters found, and NMI."""
    from sklearn.metrics import normalized_mutual_info_score

    sums = np.zeros((found.max() + 1, x.shape[1]))
    squares = 0.0
    for rows in blocks(len(x), 2**21 // x.shape[1]):
        np.add.at(sums, found[rows], x[rows])
        squares += float(np.square(x[rows], dtype=np.float64).sum())
    counts = np.maximum(np.bincount(found), 1)
    inertia = squares - float((np.square(sums).sum(axis=1) / counts).sum())
    return inertia, float(normalized_mutual_info_score(labels, found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["evaluation", "clusters"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--folder", help="where some files of all rows fit")
    options = parser.parse_args()
    scale = 50 if options.quick else 1
    size = options.rows // scale, options.dim
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.only in (None, "evaluation"):
            evaluation(Path(name), *size, options.queries // scale)
        if options.only in (None, "clusters"):
            for number in (100, 1000):
                clusters(Path(name), *size, number // scale)


if __name__ == "__main__":
    main()
