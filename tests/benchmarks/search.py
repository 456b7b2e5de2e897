"""The index beside raw faiss: build, save, load, queries, recall.

Run from the root of the project; it writes into a temporary folder:

    python tests/benchmarks/search.py            # 1,000,000 × 128
    python tests/benchmarks/search.py --quick    # 50,000 × 128; ten minutes

Two indexes of ours, two peers. "vectors" is an index of nothing but vectors,
beside raw faiss, which has them alone. "rows" also has a path and a label for
every vector, beside faiss with what it takes to do the same by hand: the rows
in a JSON file. Everyone is given the same array, leaves it as it is, and
searches by cosine: faiss normalizes a copy (`faiss.normalize_L2`). "add" is
what its build takes where the vectors are of unit length already.

They take turns, with every query too, so that other work on the machine hits
all; numbers are medians, and of saves the fastest, as virtual disks are slow
after a gigabyte or two. "build" is without the measurement of recall, which
is shown apart; "save" waits until the files are on the disk, for everyone;
"load" of ours is shown with the comparison of checksums, and without, in new
processes, as of a server that starts. Queries go to the indexes that were
loaded. Of single queries it gives the median and the 99th percentile in
milliseconds, of batches the milliseconds of one query.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import faiss
import numpy as np

from keras_dml.search import Index
from keras_dml.search.recall import Filling
from keras_dml.utils.vectors import unit_rows

DIM, DIRECTIONS, K, BATCH, REPEATS = 128, 24, 10, 256, 5

SAVES = 9
"""How often each is saved: disks vary more than processors."""

REST = 4
"""Seconds before each save, for the disk."""

PROCESSES = 3
"""How many processes load each, one after the other."""

CONTESTANTS = ("raw", "vectors", "by hand", "rows")

PEERS = {"vectors": "raw", "rows": "by hand"}

Times = dict[str, dict[str, list[float]]]


def embeddings(
    count: int, queries: int, dim: int = DIM
) -> tuple[np.ndarray, np.ndarray]:
    """Gallery and queries around the same class centers.

    As embeddings of images do, they vary in fewer directions than they have
    dimensions, and little in the others.
    """
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((max(count // 20, 1), DIRECTIONS), np.float32)
    labels = rng.integers(0, len(centers), count + queries)
    axes = rng.standard_normal((DIRECTIONS, dim), np.float32)
    x = rng.standard_normal((count + queries, dim), np.float32)
    for rows in np.array_split(np.arange(len(x)), 64):
        noise = rng.standard_normal((len(rows), DIRECTIONS), np.float32)
        x[rows] = 0.2 * x[rows] + (centers[labels[rows]] + 0.7 * noise) @ axes
    x = unit_rows(x)
    return x[:count], x[count:]


def clocked(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def timed(call: Callable[[], Any], size: int) -> tuple[Any, float]:
    """A call and its seconds, with so many bytes of memory at hand.

    A virtual machine waits for memory that it has not used for a while.
    """
    np.empty(3 * size, np.uint8).fill(0)
    return clocked(call)


def columns(count: int) -> dict[str, list]:
    return {
        "path": [f"/images/{row:07}.jpg" for row in range(count)],
        "label": (np.arange(count) // 20).tolist(),
    }


def normalized(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    faiss.normalize_L2(x)
    return x


def raw_build(units: np.ndarray, factory: str) -> Any:
    index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(units)
    index.add(units)
    return index


@contextmanager
def measured(seconds_of_recall: list[float]) -> Iterator[None]:
    """Seconds that indexes take to measure their recall."""
    finish = Filling.finish

    def timed_finish(*arguments):
        result, seconds = clocked(lambda: finish(*arguments))
        seconds_of_recall.append(seconds)
        return result

    with patch.object(Filling, "finish", timed_finish):
        yield


def build(
    x: np.ndarray, rows: dict[str, list], factory: str, times: Times
) -> dict[str, Any]:
    def of_raw():
        units, preparing = timed(lambda: normalized(x), x.nbytes)
        index, seconds = timed(lambda: raw_build(units, factory), x.nbytes)
        times["raw"]["build"].append(preparing + seconds)
        times["by hand"]["build"].append(preparing + seconds)
        times["raw"]["add"].append(seconds)
        return index

    def of_ours(name, columns):
        recall = []
        with measured(recall):
            index, seconds = timed(
                lambda: Index(x, columns, factory=factory), x.nbytes
            )
        times[name]["build"].append(seconds - sum(recall))
        times[name]["recall"] += recall
        return index

    return {
        "raw": of_raw(),
        "vectors": of_ours("vectors", None),
        "rows": of_ours("rows", rows),
    }


def write_synced(path: Path, write: Callable[[str], object]) -> None:
    write(str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def save(
    built: dict[str, Any],
    rows: dict[str, list],
    folder: Path,
    first: int,
    times: Times,
) -> None:
    """Saves each, in turns of who is first."""

    def of_raw():
        write_synced(
            folder / "raw", lambda path: faiss.write_index(built["raw"], path)
        )

    def of_rows():
        write_synced(
            folder / "rows.json",
            lambda path: Path(path).write_text(json.dumps(rows)),
        )

    def raw():
        _, vectors = clocked(of_raw)
        _, table = clocked(of_rows)
        times["raw"]["save"].append(vectors)
        times["by hand"]["save"].append(vectors + table)

    def ours(name):
        _, seconds = clocked(lambda: built[name].save(folder / name))
        times[name]["save"].append(seconds)

    calls = [raw, *(partial(ours, name) for name in PEERS)]
    for number in range(len(calls)):
        time.sleep(REST)
        calls[(first + number) % len(calls)]()


def load_times(name: str, folder: Path, verify: bool) -> list[float]:
    """Seconds of several loads; the first finds memory for the others."""
    seconds = []
    for _ in range(1 + REPEATS):
        if name in PEERS:
            loaded = clocked(lambda: Index.load(folder / name, verify=verify))
        else:
            loaded = clocked(lambda: load_raw(folder, name == "by hand"))
        seconds.append(loaded[1])
        del loaded
    return seconds[1:]


def load_raw(folder: Path, with_rows: bool) -> tuple[Any, Any]:
    rows = json.loads((folder / "rows.json").read_text()) if with_rows else None
    return faiss.read_index(str(folder / "raw")), rows


def load(folder: Path, times: Times) -> None:
    processes = multiprocessing.get_context("spawn")
    for verify, label in ((True, "load"), (False, "load unchecked")):
        for name in CONTESTANTS:
            with ProcessPoolExecutor(1, processes) as process:
                call = process.submit(load_times, name, folder, verify)
            times[name][label] += call.result()


def race(loaded: dict[str, Any], queries: np.ndarray, times: Times) -> None:
    batches = np.array_split(queries, max(1, len(queries) // BATCH))
    for name, turns in (("query", list(queries[:, None])),
                        ("batch", REPEATS * batches)):  # fmt: skip
        for x in turns:
            for who, index in loaded.items():
                _, seconds = clocked(lambda i=index, q=x: i.search(q, K))
                times[who][name].append(1000 * seconds / len(x))
    for who in loaded:
        single = times[who].pop("query")
        times[who]["p50"] = [float(np.median(single))]
        times[who]["p99"] = [float(np.quantile(single, 0.99))]


def recall(ids: np.ndarray, exact: np.ndarray) -> float:
    pairs = zip(exact, ids, strict=True)
    return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))


def compare(
    x: np.ndarray, queries: np.ndarray, exact: np.ndarray, factory: str
) -> None:
    times: Times = {name: defaultdict(list) for name in CONTESTANTS}
    shown: set[str] = set()
    folder = Path(tempfile.mkdtemp(prefix="search-"))
    rows = columns(len(x))
    try:
        # To train others takes minutes.
        for _ in range(REPEATS if factory == "Flat" else 1):
            built = build(x, rows, factory, times)
        parameters = built["rows"].parameters
        if parameters:
            space = faiss.ParameterSpace()
            space.set_index_parameters(built["raw"], parameters)
        at = built["rows"].recall and built["rows"].recall.at
        for turn in range(SAVES):
            place = folder / f"{turn}"
            place.mkdir()
            save(built, rows, place, turn, times)
            if turn:
                shutil.rmtree(folder / f"{turn - 1}")
        size = (place / "raw").stat().st_size / 2**20
        del built
        for _ in range(PROCESSES):
            load(place, times)
        print(f"\n{factory} {parameters}, {size:,.0f} MB, recall measured at "
              f"build: {at}")  # fmt: skip
        report(times, shown)
        loaded = {name: Index.load(place / name) for name in PEERS}
        loaded["raw"], _ = load_raw(place, with_rows=False)
    finally:
        shutil.rmtree(folder)
    race(loaded, queries, times)
    for who, index in loaded.items():
        hits = index.search(queries, K)
        ids = hits[1] if who == "raw" else hits.ids
        times[who]["recall@10"] = [recall(ids, exact)]
    report(times, shown)


def report(times: Times, shown: set[str]) -> None:
    """Prints what was measured and is not among `shown`, and adds it."""
    for name in [*times["raw"], *times["rows"]]:
        if name not in shown:
            print(line(name, times), flush=True)
            shown.add(name)


def line(name: str, times: Times) -> str:
    summary = min if name == "save" else statistics.median
    values = {
        who: summary(times[who][name])
        for who in CONTESTANTS
        if times[who].get(name)
    }
    cells = [
        f"{values[who]:.4f}" if who in values else "–" for who in CONTESTANTS
    ]
    for ours, peer in PEERS.items():
        has_both = ours in values and peer in values
        if has_both and name != "recall@10":
            cells.append(f"{values[ours] / values[peer] - 1:+.1%}")
    return f"  {name:<16}" + "".join(f"{x:>12}" for x in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["exact", "ivf", "hnsw"])
    parser.add_argument("--queries", type=int, default=1000)
    options = parser.parse_args()
    count, lists = (50_000, 256) if options.quick else (1_000_000, 4096)
    kinds = {"exact": "Flat", "ivf": f"IVF{lists},PQ32", "hnsw": "HNSW32"}
    x, queries = embeddings(count, options.queries)
    _, exact = faiss.knn(queries, x, K, faiss.METRIC_INNER_PRODUCT)
    print(f"{count:,} × {DIM}, {faiss.omp_get_max_threads()} threads; "
          "seconds, and milliseconds a query:\n"
          f"{', '.join(CONTESTANTS)}, ours over its peer")  # fmt: skip
    for name, factory in kinds.items():
        if options.only in (None, name):
            compare(x, queries, exact, factory)


if __name__ == "__main__":
    main()
