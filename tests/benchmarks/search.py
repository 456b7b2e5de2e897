"""The index beside raw faiss: build, save, load, queries, recall.

Run from the root of the project; it writes into a temporary folder:

    python tests/benchmarks/search.py            # 1,000,000 × 128
    python tests/benchmarks/search.py --quick    # 50,000 × 128; a minute

An index has a row of columns for every vector, here a path and a label, and
takes vectors of any length. So there are two peers: faiss with its vectors
alone, and faiss with what it takes to do the same by hand: a normalized copy
of the vectors (`faiss.normalize_L2`) and the rows in a JSON file beside it.

They take turns with every query, so that other work on the machine hits
all. "build" is without the measurement of recall, which is shown apart;
"save" waits until the files are on the disk, for everyone; "load" of ours is
shown without and with the comparison of checksums. Of single queries it gives
the median and the 99th percentile in milliseconds, of batches the
milliseconds of one query; the ratio is the median of ratios.
"""

import argparse
import json
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

DIM, K, BATCH, REPEATS = 128, 10, 256, 3

BY_HAND = ", by hand"

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


def columns(count: int) -> dict[str, list]:
    return {
        "path": [f"/images/{row:07}.jpg" for row in range(count)],
        "label": (np.arange(count) // 20).tolist(),
    }


def raw_build(x: np.ndarray, factory: str, parameters: str, times: Times):
    with timed(times, "build" + BY_HAND):
        x = x.copy()
        faiss.normalize_L2(x)
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

    rows = columns(len(x))
    indexed_rows.recall.measure = timed_measure
    try:
        with timed(times, "build"):
            index = Index(x, rows, factory=factory)
    finally:
        indexed_rows.recall.measure = measure
    times["build"] -= times.get("recall", 0.0)
    return index


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def raw_save(index, rows: dict[str, list], folder: Path, times: Times) -> None:
    with timed(times, "save"):
        faiss.write_index(index, str(folder / "raw.faiss"))
        sync(folder / "raw.faiss")
    with timed(times, "save" + BY_HAND):
        (folder / "rows.json").write_text(json.dumps(rows))
        sync(folder / "rows.json")


def raw_load(folder: Path, times: Times):
    with timed(times, "load"):
        index = faiss.read_index(str(folder / "raw.faiss"))
    with timed(times, "load" + BY_HAND):
        json.loads((folder / "rows.json").read_text())
    return index


def files(raw, ours: Index, folder: Path, times: tuple[Times, Times]):
    rows = columns(len(ours))
    for turn in range(REPEATS):
        (folder / f"{turn}").mkdir()
        raw_save(raw, rows, folder / f"{turn}", times[0])
        with timed(times[1], "save"):
            ours.save(folder / f"{turn}" / "ours")
    for turn in range(REPEATS):
        raw = raw_load(folder / f"{turn}", times[0])
        with timed(times[1], "load"):
            Index.load(folder / f"{turn}" / "ours", verify=False)
        with timed(times[1], "load, verified"):
            ours = Index.load(folder / f"{turn}" / "ours")
    for each in times:
        for name in each:
            each[name] /= REPEATS if name[:4] in ("save", "load") else 1
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
        size = (folder / "0" / "raw.faiss").stat().st_size / 2**20
    finally:
        shutil.rmtree(folder)
    race(raw, ours, queries, times)
    times[0]["recall@10"] = recall(raw.search(queries, K)[1], exact)
    times[1]["recall@10"] = recall(ours.search(queries, K).ids, exact)
    print(f"\n{factory} {ours.parameters}, {size:,.0f} MB, recall measured at "
          f"build: {ours.recall and ours.recall.at}")  # fmt: skip
    for name in times[1]:
        print(line(name, *times), flush=True)


def line(name: str, raw: Times, ours: Times) -> str:
    peer = raw.get(name.removesuffix(", verified"))
    by_hand = raw.get(name.removesuffix(", verified") + BY_HAND)
    peers = [peer, peer + by_hand if peer and by_hand else None]
    cells = ["–" if x is None else f"{x:.4f}" for x in [*peers, ours[name]]]
    is_time = name not in ("recall@10", "median ratio")
    over = [f"{ours[name] / x - 1:+.1%}" for x in peers if x and is_time]
    return f"  {name:<16}" + "".join(f"{x:>12}" for x in [*cells, *over])


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
