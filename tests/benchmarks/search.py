"""The index beside raw faiss: build, save, load, queries, recall.

Run from the root of the project; it writes into a temporary folder:

    python tests/benchmarks/search.py            # 1,000,000 × 128
    python tests/benchmarks/search.py --quick    # 50,000 × 128; a minute

An index has a row of columns for every vector, here a path and a label, and
takes vectors of any length. So there are two peers: faiss with its vectors
alone, and faiss with what it takes to do the same by hand: a normalized copy
of the vectors (`faiss.normalize_L2`) and the rows in a JSON file beside it.

They take turns, with every query too, so that other work on the machine hits
all; numbers are medians. "build" is without the measurement of recall, which
is shown apart; "save" waits until the files are on the disk, for everyone;
"load" of ours is shown without and with the comparison of checksums. Of
single queries it gives the median and the 99th percentile in milliseconds, of
batches the milliseconds of one query.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import faiss
import numpy as np

from keras_dml.evaluation.vectors import unit_rows
from keras_dml.search import Index, indexed_rows

DIM, DIRECTIONS, K, BATCH, REPEATS = 128, 24, 10, 256, 3

CONTESTANTS = ("raw", "by hand", "ours")

Times = dict[str, dict[str, list[float]]]


def embeddings(count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Gallery and queries around the same class centers.

    As embeddings of images do, they vary in fewer directions than they have
    dimensions, and little in the others.
    """
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((max(count // 20, 1), DIRECTIONS), np.float32)
    labels = rng.integers(0, len(centers), count + queries)
    axes = rng.standard_normal((DIRECTIONS, DIM), np.float32)
    x = rng.standard_normal((count + queries, DIM), np.float32)
    for rows in np.array_split(np.arange(len(x)), 64):
        own = rng.standard_normal((len(rows), DIRECTIONS), np.float32)
        x[rows] = 0.2 * x[rows] + (centers[labels[rows]] + 0.7 * own) @ axes
    x = unit_rows(x)
    return x[:count], x[count:]


def clocked(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def columns(count: int) -> dict[str, list]:
    return {
        "path": [f"/images/{row:07}.jpg" for row in range(count)],
        "label": (np.arange(count) // 20).tolist(),
    }


def normalized(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    faiss.normalize_L2(x)
    return x


def raw_build(x: np.ndarray, factory: str, times: Times):
    def build():
        index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(units)
        index.add(units)
        return index

    units, preparing = clocked(lambda: normalized(x))
    index, building = clocked(build)
    times["raw"]["build"].append(building)
    times["by hand"]["build"].append(preparing + building)
    return index


def our_build(
    x: np.ndarray, rows: dict[str, list], factory: str, times: Times
) -> Index:
    measure = indexed_rows.recall.measure
    measuring = []

    def timed_measure(*arguments):
        result, seconds = clocked(lambda: measure(*arguments))
        measuring.append(seconds)
        return result

    indexed_rows.recall.measure = timed_measure
    try:
        index, building = clocked(lambda: Index(x, rows, factory=factory))
    finally:
        indexed_rows.recall.measure = measure
    times["ours"]["build"].append(building - sum(measuring))
    times["ours"]["recall"] += measuring
    return index


def write_synced(path: Path, write: Callable[[str], object]) -> None:
    write(str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def save(raw, ours: Index, rows: dict[str, list], folder: Path, times: Times):
    _, vectors = clocked(
        lambda: write_synced(
            folder / "raw.faiss", lambda path: faiss.write_index(raw, path)
        )
    )
    _, table = clocked(
        lambda: write_synced(
            folder / "rows.json",
            lambda path: Path(path).write_text(json.dumps(rows)),
        )
    )
    times["raw"]["save"].append(vectors)
    times["by hand"]["save"].append(vectors + table)
    _, whole = clocked(lambda: ours.save(folder / "ours"))
    times["ours"]["save"].append(whole)


def load(folder: Path, times: Times):
    raw, vectors = clocked(lambda: faiss.read_index(str(folder / "raw.faiss")))
    _, table = clocked(lambda: json.loads((folder / "rows.json").read_text()))
    for name in ("load", "load, verified"):
        verify = name != "load"
        times["raw"][name].append(vectors)
        times["by hand"][name].append(vectors + table)
        ours, whole = clocked(
            lambda v=verify: Index.load(folder / "ours", verify=v)
        )
        times["ours"][name].append(whole)
    return raw, ours


def race(raw, ours: Index, queries: np.ndarray, times: Times) -> None:
    searches: dict[str, Callable[[np.ndarray], object]] = {
        "raw": lambda x: raw.search(x, K),
        "ours": lambda x: ours.search(x, K),
    }
    for x in queries:
        for name, search in searches.items():
            _, seconds = clocked(lambda s=search, q=x[None]: s(q))
            times[name]["query"].append(1000 * seconds)
    for x in np.array_split(queries, max(1, len(queries) // BATCH)):
        for name, search in searches.items():
            _, seconds = clocked(lambda s=search, q=x: s(q))
            times[name]["batch"].append(1000 * seconds / len(x))
    for name in searches:
        single = times[name].pop("query")
        times[name]["p50"] = [float(np.median(single))]
        times[name]["p99"] = [float(np.quantile(single, 0.99))]


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    pairs = zip(exact, found, strict=True)
    return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))


def compare(
    x: np.ndarray, queries: np.ndarray, exact: np.ndarray, factory: str
) -> None:
    times: Times = {name: defaultdict(list) for name in CONTESTANTS}
    folder = Path(tempfile.mkdtemp(prefix="search-"))
    rows = columns(len(x))
    try:
        # To train others takes minutes.
        for _ in range(REPEATS if factory == "Flat" else 1):
            # The first to ask for memory waits for it: each is first once.
            our_build(x, rows, factory, times)
            raw_build(x, factory, times)
            raw = raw_build(x, factory, times)
            ours = our_build(x, rows, factory, times)
        if ours.parameters:
            space = faiss.ParameterSpace()
            space.set_index_parameters(raw, ours.parameters)
        for turn in range(REPEATS):
            (folder / f"{turn}").mkdir()
            save(raw, ours, rows, folder / f"{turn}", times)
        for turn in range(REPEATS):
            raw, ours = load(folder / f"{turn}", times)
        size = (folder / "0" / "raw.faiss").stat().st_size / 2**20
    finally:
        shutil.rmtree(folder)
    race(raw, ours, queries, times)
    times["raw"]["recall@10"] = [recall(raw.search(queries, K)[1], exact)]
    times["ours"]["recall@10"] = [recall(ours.search(queries, K).ids, exact)]
    print(f"\n{factory} {ours.parameters}, {size:,.0f} MB, recall measured at "
          f"build: {ours.recall and ours.recall.at}")  # fmt: skip
    for name in times["ours"]:
        print(line(name, times), flush=True)


def line(name: str, times: Times) -> str:
    values = [
        statistics.median(times[who][name]) if times[who].get(name) else None
        for who in CONTESTANTS
    ]
    cells = ["–" if x is None else f"{x:.4f}" for x in values]
    *peers, ours = values
    if name != "recall@10":
        cells += [f"{ours / x - 1:+.1%}" for x in peers if x]
    return f"  {name:<16}" + "".join(f"{x:>12}" for x in cells)


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
          "seconds, and milliseconds a query:\n"
          "raw faiss, with the rest by hand, ours, over each")  # fmt: skip
    for name, factory in kinds.items():
        if options.only in (None, name):
            compare(x, queries, exact, factory)


if __name__ == "__main__":
    main()
