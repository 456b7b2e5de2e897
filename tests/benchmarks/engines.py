"""The engines of an index side by side: faiss, LanceDB and Milvus Lite.

Run from the root of the project, with the extra `engines` installed; it writes
into a temporary folder:

    python tests/benchmarks/engines.py                  # 100,000 × 128
    python tests/benchmarks/engines.py --rows 10000     # a minute

All are given the same vectors, of 1,000 clusters, with keys and a column of
shares in 0 to 1, and searched by cosine through `Index`. "build" is from
vectors in memory to an index that can be searched, on the disk: a database is
compared with what was pushed by then, as `push` does. "disk" is the folder.
Queries are single, of other draws of the clusters; recall@10 is against all
vectors compared in float64, and with a filter against those that pass. Of
single queries it gives the median and the 99th percentile in milliseconds.
"add" and "delete" are those of 1 % of the rows in one call each, in seconds;
what faiss takes to save it then is not in it.
"""

import argparse
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_dml.search import Index

DIM, CLUSTERS, K, QUERIES = 128, 1000, 10, 200

SPREAD = 0.7
"""Standard deviation inside of a cluster; that of the centers is 1."""

SHARES = (0.1, 0.01)

KINDS = [
    ("faiss", "Flat"), ("faiss", "HNSW32"), ("faiss", "IVF512,Flat"),
    ("LanceDB", "Flat"), ("LanceDB", "IVF512,Flat"), ("LanceDB", "HNSW32"),
    ("Milvus Lite", "Flat"), ("Milvus Lite", "HNSW32"),
]  # fmt: skip

Row = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--only", help="an engine")
    given = parser.parse_args()
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(CLUSTERS, DIM))
    x = clustered(draw, centers, given.rows)
    more = clustered(draw, centers, given.rows // 100)
    queries = clustered(draw, centers, given.queries)
    share = draw.random(given.rows)
    names = ("faiss-cpu", "lancedb", "pymilvus", "milvus-lite")
    print(platform.processor() or platform.machine(), os.cpu_count(), "CPUs")
    print(", ".join(f"{name} {version(name)}" for name in names))
    rows = []
    for engine, factory in KINDS:
        if given.only in (None, engine):
            rows.append(measured(engine, factory, x, share, more, queries))
            print(rows[-1], flush=True)
    print_table(rows)


def clustered(draw, centers, count: int) -> np.ndarray:
    """Vectors around centers, (count, D) float32."""
    chosen = centers[draw.integers(len(centers), size=count)]
    return (chosen + draw.normal(0, SPREAD, chosen.shape)).astype("float32")


def measured(engine, factory, x, share, more, queries) -> Row:
    """Everything about one kind of index."""
    folder = Path(tempfile.mkdtemp())
    try:
        keys = [f"key-{i}" for i in range(len(x))]
        columns = {"share": share.tolist()}
        options = {"keys": keys, "factory": factory}
        began = time.perf_counter()
        if engine == "faiss":
            index = Index(x, columns, **options)
            index.save(folder / "index")
        else:
            place = {
                "LanceDB": f"lancedb://{folder}/gallery",
                "Milvus Lite": f"milvus://{folder}/index.db/gallery",
            }[engine]
            index = Index(x, columns, store=place, **options)
        row = {"engine": engine, "kind": factory}
        row["build s"] = f"{time.perf_counter() - began:.1f}"
        row["disk MB"] = f"{size(folder) / 1e6:.0f}"
        units = x / np.linalg.norm(x, axis=1, keepdims=True)
        row.update(searched(index, units, share, queries))
        new = [f"new-{i}" for i in range(len(more))]
        values = {"share": [2.0] * len(more)}
        seconds, _ = timed(lambda: index.add(more, values, keys=new))
        row["add s"] = f"{seconds:.2f}"
        seconds, _ = timed(lambda: index.remove(new))
        row["delete s"] = f"{seconds:.2f}"
        index.close()
        return row
    finally:
        shutil.rmtree(folder)


def searched(index, units, share, queries) -> Row:
    """Times and recalls of single queries, with filters and without."""
    row: Row = {}
    for most in (None, *SHARES):
        where = None if most is None else {"share": {"<": most}}
        passes = np.ones(len(share), bool) if most is None else share < most
        index.search(queries[0], K, where=where)  # Not the first one.
        found = [
            timed(partial(index.search, x, K, where=where)) for x in queries
        ]
        ids = [hits.ids[0] for _, hits in found]
        times = 1000 * np.array([seconds for seconds, _ in found])
        name = "" if most is None else f"{most:.0%} "
        row[f"{name}p50 ms"] = f"{np.median(times):.1f}"
        if most is None:
            row["p99 ms"] = f"{np.quantile(times, 0.99):.1f}"
        row[f"{name}recall"] = f"{recall(units, passes, queries, ids):.3f}"
    return row


def recall(units, passes, queries, ids) -> float:
    """Mean share of the exact nearest that were found."""
    rows, shares = np.flatnonzero(passes), []
    some = units[rows].astype(np.float64)
    for query, found in zip(queries, ids, strict=True):
        nearest = rows[np.argsort(-(some @ query), kind="stable")[:K]]
        shares.append(np.isin(nearest, found).mean())
    return float(np.mean(shares))


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds that something takes, and what it returns."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(x.stat().st_size for x in folder.rglob("*") if x.is_file())


def print_table(rows: list[Row]) -> None:
    names = list(rows[0])
    for cells in (names, ["---"] * len(names), *(row.values() for row in rows)):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
