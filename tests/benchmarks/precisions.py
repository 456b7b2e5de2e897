"""Indexes of eight bits and of one, beside faiss and usearch.

Run from the root of the project; it writes into a temporary folder:

    python -m tests.benchmarks.precisions                # 1,000,000 × 512
    python -m tests.benchmarks.precisions --count 50000

Of every precision and factory: ours, which reads whole vectors from the disk;
faiss's IndexRefine of the same codes, which has them in memory; usearch's exact
search of codes that NumPy makes, whose candidates are as many as ours and are
scored by NumPy; and faiss Flat. All take turns. Times are medians of rounds,
in milliseconds a query, and how many times as fast as faiss Flat: the median
of the rounds and, in brackets, their range. "memory" is over that of float32
vectors: of ours what a new process takes to load the index and to search
(anonymous memory of Linux, without pages of files), of peers the size of what
they search. A million vectors take 6 GB and half an hour.
"""

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import faiss
import numpy as np

from keras_dml.search import Index
from keras_dml.search.engine import CANDIDATES
from tests.benchmarks.search import K, clocked, embeddings, recall

DIM, QUERIES, BATCH, ONES, ROUNDS = 512, 256, 64, 8, 5

KINDS = (("binary", "Flat", None), ("int8", "IVF1024,Flat", "nprobe=128"),
         ("binary", "IVF1024,Flat", "nprobe=128"),
         ("int8", "Flat", None))  # fmt: skip

WIDTHS = (8, 8, 9, 22, 9, 22)


@dataclass
class Contestant:
    """Who finds ids, (Q, k), and the bytes of memory that it takes."""

    name: str
    search: Callable[[np.ndarray], np.ndarray]
    memory: int


def anonymous() -> int:
    """Bytes of memory of this process that are not pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    raise OSError("this needs Linux")


def memory_of(folder: Path, queries: np.ndarray) -> int:
    """Bytes that an index takes when it has searched."""
    Index(queries).search(queries, K)  # What libraries take for themselves.
    before = anonymous()
    index = Index.load(folder, verify=False)
    index.search(queries, K)
    return anonymous() - before


def of_ours(
    x: np.ndarray, flat: Any, queries: np.ndarray, folder: Path, **kind: Any
) -> list[Contestant]:
    """An index, and faiss's IndexRefine of its codes and whole vectors."""
    index, seconds = clocked(lambda: Index(x, **kind))
    said = index.recall.at[10]
    index.save(folder)
    index = Index.load(folder, verify=False)
    refined = faiss.IndexRefine(index._gallery.engine.index, flat)
    refined.k_factor = float(index.parameters.rpartition("=")[2])
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, processes) as process:
        memory = process.submit(memory_of, folder, queries).result()
    codes = next((folder / "data").glob("*.faiss")).stat().st_size
    print(f"\n{index.precision} {index.factory} {index.parameters}, built in "
          f"{seconds:.0f} s, which says recall@10 {said:.4f}")  # fmt: skip
    return [
        Contestant("ours", lambda q: index.search(q, K).ids, memory),
        Contestant("faiss IndexRefine", lambda q: refined.search(q, K)[1],
                   codes + x.nbytes),
    ]  # fmt: skip


def of_usearch(precision: str, x: np.ndarray) -> list[Contestant]:
    """Exact search of codes, whose candidates NumPy scores."""
    if importlib.util.find_spec("usearch") is None:
        return []
    import usearch
    from usearch.index import search

    def encoded(rows: np.ndarray) -> np.ndarray:
        if precision == "binary":
            return np.packbits(rows > 0, axis=1)
        return np.rint(rows * scale).astype(np.int8)

    def found(queries: np.ndarray) -> np.ndarray:
        near = search(codes, encoded(queries), wide, metric, exact=True)
        keys = near.keys.reshape(len(queries), -1).astype(np.int64)
        scores = np.einsum("qkd,qd->qk", x[keys], queries)
        order = np.argsort(-scores, axis=1)[:, :K]
        return np.take_along_axis(keys, order, axis=1)

    scale, wide = 127 / np.abs(x).max(), CANDIDATES[precision] * K
    metric = "hamming" if precision == "binary" else "ip"
    parts = np.array_split(x, 64)
    codes = np.concatenate([encoded(part) for part in parts])
    name = f"usearch {usearch.__version__}, exact"
    return [Contestant(name, found, codes.nbytes)]


def race(some: list[Contestant], x: np.ndarray, queries: np.ndarray) -> None:
    """All in turns, round by round; prints each beside the first."""
    exact = some[0].search(queries)
    turns = list(queries[:ONES, None]), [queries[:BATCH]]
    times = np.zeros((len(turns), len(some), ROUNDS))
    for turn in range(ROUNDS):
        for size, batches in enumerate(turns):
            count = sum(map(len, batches))
            for who, contestant in enumerate(some):
                for batch in batches:
                    _, seconds = clocked(
                        lambda c=contestant, b=batch: c.search(b)
                    )
                    times[size, who, turn] += 1000 * seconds / count
    for who, contestant in enumerate(some):
        found = recall(contestant.search(queries), exact)
        cells = [f"{contestant.memory / x.nbytes:.3f}", f"{found:.4f}"]
        for spent in times:
            ratios = spent[0] / spent[who]
            cells.append(f"{np.median(spent[who]):.2f}")
            cells.append(f"{np.median(ratios):.1f} [{ratios.min():.1f}, "
                         f"{ratios.max():.1f}]")  # fmt: skip
        print(row(contestant.name, cells), flush=True)


def row(name: str, cells: list[str]) -> str:
    pairs = zip(cells, WIDTHS, strict=True)
    return f"{name:24}" + "".join(f"{x:>{n}}" for x, n in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    count = parser.parse_args().count
    x, queries = embeddings(count, QUERIES, DIM)
    flat = faiss.IndexFlatIP(DIM)
    flat.add(x)
    x = faiss.rev_swig_ptr(flat.get_xb(), x.size).reshape(x.shape)
    print(f"{count:,} × {DIM}, {faiss.omp_get_max_threads()} threads, faiss "
          f"{faiss.__version__} ({faiss.get_compile_options().strip()}), NumPy "
          f"{np.__version__}")  # fmt: skip
    head = ["memory", "recall", "one", "times", f"{BATCH} each", "times"]
    print(row("", head), flush=True)
    for precision, factory, parameters in KINDS:
        folder = Path(tempfile.mkdtemp(prefix="search-"))
        some = [Contestant("faiss Flat", lambda q: flat.search(q, K)[1],
                           x.nbytes)]  # fmt: skip
        kind = {"factory": factory, "parameters": parameters}
        try:
            some += of_ours(x, flat, queries, folder / "i",
                            precision=precision, **kind)  # fmt: skip
            some += of_usearch(precision, x) if factory == "Flat" else []
            race(some, x, queries)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
