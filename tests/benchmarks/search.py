"""The index beside raw faiss: build, save, load, queries, recall.

Run from the root of the project; it writes into a temporary folder:

    python tests/benchmarks/search.py            # 1,000,000 × 128
    python tests/benchmarks/search.py --quick    # 50,000 × 128; a minute

The two take turns with every query, so that other work on the machine hits
both. "build" is of unit vectors and without the measurement of recall, which
is shown apart; "save" waits until the file is on the disk, with raw faiss
too; "load" of ours is shown without and with the comparison of checksums.
Of single queries it gives the median and the 99th percentile in
milliseconds, of batches the milliseconds of one query.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import faiss
import numpy as np

from keras_dml.evaluation.vectors import unit_rows
from keras_dml.search import Index, indexed_rows

DIM, K, BATCH = 128, 10, 256

Times = dict[str, float]


def embeddings(count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Gallery and queries around the same class centers."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((max(count // 20, 1), DIM), np.float32)
    labels = rng.integers(0, len(centers), count + queries)
    x = rng.standard_normal((count + queries, DIM), np.float32)
    for rows in np.array_split(np.arange(len(x)), 64):
        x[rows] += 0.7 * centers[labels[rows]]
    x = unit_rows(x)
    return x[:count], x[count:]


@contextmanager
def timed(times: Times, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - start


def raw_build(x: np.ndarray, factory: str, parameters: str, times: Times):
    with timed(times, "build"):
        index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(x)
        index.add(x)
    if parameters:
        faiss.ParameterSpace().set_index_parameters(index, parameters)
    return index


def our_build(x: np.ndarray, factory: str, times: Times) -> Index:
    measure = indexed_rows.recall.measure

    def timed_measure(*arguments):
        with timed(times, "recall"):
            return measure(*arguments)

    columns = {
        "path": [f"/images/{row:07}.jpg" for row in range(len(x))],
        "label": (np.arange(len(x)) // 20).tolist(),
    }
    indexed_rows.recall.measure = timed_measure
    try:
        with timed(times, "build"):
            index = Index(x, columns, factory=factory)
    finally:
        indexed_rows.recall.measure = measure
    times["build"] -= times.get("recall", 0.0)
    return index


def raw_save(index, path: Path) -> None:
    faiss.write_index(index, str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def files(raw, ours: Index, folder: Path, times: tuple[Times, Times]):
    with timed(times[0], "save"):
        raw_save(raw, folder / "raw.faiss")
    with timed(times[1], "save"):
        ours.save(folder / "ours")
    for _ in range(3):
        with timed(times[0], "load"):
            raw = faiss.read_index(str(folder / "raw.faiss"))
        with timed(times[1], "load"):
            Index.load(folder / "ours", verify=False)
        with timed(times[1], "load, verified"):
            ours = Index.load(folder / "ours")
    for each in times:
        for name in each:
            each[name] /= 3 if name.startswith("load") else 1
    return raw, ours


def milliseconds(search: Callable[[np.ndarray], object], x: np.ndarray):
    start = time.perf_counter()
    search(x)
    return (time.perf_counter() - start) * 1000 / len(x)


def race(raw, ours: Index, queries: np.ndarray, times: tuple[Times, Times]):
    searches = (lambda x: raw.search(x, K), lambda x: ours.search(x, K))
    singles = np.array(
        [[milliseconds(s, x[None]) for s in searches] for x in queries]
    )
    parts = np.array_split(queries, max(1, len(queries) // BATCH))
    batches = np.array([[milliseconds(s, x) for s in searches] for x in parts])
    for i, each in enumerate(times):
        each["p50"], each["p99"] = np.quantile(singles[:, i], [0.5, 0.99])
        each["batch"] = float(np.median(batches[:, i]))
        each["median ratio"] = float(np.median(singles[:, i] / singles[:, 0]))


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    pairs = zip(exact, found, strict=True)
    return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))


def compare(
    x: np.ndarray, queries: np.ndarray, exact: np.ndarray, factory: str
) -> None:
    times: tuple[Times, Times] = ({}, {})
    folder = Path(tempfile.mkdtemp(prefix="search-"))
    try:
        ours = our_build(x, factory, times[1])
        raw = raw_build(x, factory, ours.parameters, times[0])
        raw, ours = files(raw, ours, folder, times)
        size = (folder / "raw.faiss").stat().st_size / 2**20
    finally:
        shutil.rmtree(folder)
    race(raw, ours, queries, times)
    times[0]["recall@10"] = recall(raw.search(queries, K)[1], exact)
    times[1]["recall@10"] = recall(ours.search(queries, K).ids, exact)
    print(f"\n{factory} {ours.parameters}, {size:,.0f} MB, recall measured at "
          f"build: {ours.recall and ours.recall.at}")  # fmt: skip
    for name in times[1]:
        values = [each.get(name) for each in times]
        cells = ["–" if x is None else f"{x:.4f}" for x in values]
        over = ""
        if values[0] and name not in ("recall@10", "median ratio"):
            over = f"{values[1] / values[0] - 1:+.1%}"
        print(f"  {name:<16}{cells[0]:>12}{cells[1]:>12}{over:>10}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["exact", "ivf", "hnsw"])
    options = parser.parse_args()
    count, lists = (50_000, 256) if options.quick else (1_000_000, 4096)
    kinds = {"exact": "Flat", "ivf": f"IVF{lists},PQ32", "hnsw": "HNSW32"}
    x, queries = embeddings(count, 1000)
    _, exact = faiss.knn(queries, x, K, faiss.METRIC_INNER_PRODUCT)
    print(f"{count:,} × {DIM}, {faiss.omp_get_max_threads()} threads; "
          "seconds, and milliseconds a query: raw faiss, ours")  # fmt: skip
    for name, factory in kinds.items():
        if options.only in (None, name):
            compare(x, queries, exact, factory)


if __name__ == "__main__":
    main()
