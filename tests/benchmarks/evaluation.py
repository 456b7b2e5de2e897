"""Time and memory of evaluation beside faiss and pytorch-metric-learning.

Run from the root of the project:

    python tests/benchmarks/evaluation.py            # sizes of SOP; minutes
    python tests/benchmarks/evaluation.py --quick    # a twentieth; seconds

Ratios are of medians over repeats that alternate between the contestants.
Other work on the machine distorts seconds more than CPU seconds. Memory is
the highest resident size, less that before the call; Linux only.
"""

import argparse
import os
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from keras_dml.evaluation import evaluate_embeddings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.vectors import blocks, unit_rows

METRICS = (
    "recall@1",
    "recall@10",
    "recall@100",
    "recall@1000",
    "r_precision",
    "map@r",
)
MEMORY = "512MB"
STATUS = Path("/proc/self/status")


@dataclass
class Contestant:
    """Something to measure, and what was measured."""

    name: str
    run: Callable[[], object]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    megabytes: float = 0.0

    def measure(self) -> None:
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        start, cpu_start = time.perf_counter(), time.process_time()
        self.run()
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(time.process_time() - cpu_start)
        peak = (resident("VmHWM") - before) / 1024
        self.megabytes = max(self.megabytes, peak)

    def __str__(self) -> str:
        return (
            f"  {self.name:<44} {statistics.median(self.seconds):8.2f} s "
            f"{statistics.median(self.cpu_seconds):8.2f} CPU s "
            f"{self.megabytes:6.0f} MB"
        )


def resident(entry: str) -> int:
    """Resident memory, now (VmRSS) or at most (VmHWM), in KB."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(entry):
            return int(line.split()[1])
    raise RuntimeError(f"{STATUS} has no {entry}.")


def race(title: str, contestants: list[Contestant], repeats: int) -> None:
    """Measures all in turn; prints times relative to the first."""
    print(title, flush=True)
    for _ in range(repeats):
        for contestant in contestants:
            contestant.measure()
    first = contestants[0]
    for contestant in contestants:
        wall = _ratio(contestant.seconds, first.seconds)
        cpu = _ratio(contestant.cpu_seconds, first.cpu_seconds)
        print(f"{contestant}   × {wall:.2f} (CPU × {cpu:.2f})", flush=True)


def _ratio(values: list[float], base: list[float]) -> float:
    return statistics.median(values) / statistics.median(base)


def embeddings(
    count: int, dims: int, classes: int, signal: float
) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around class centers, as a trained network gives them."""
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, classes, count))
    centers = rng.standard_normal((classes, dims), dtype=np.float32)
    x = signal * centers[labels]
    x += rng.standard_normal((count, dims), dtype=np.float32)
    return unit_rows(x), labels


def faiss_search(x: np.ndarray, k: int = 21) -> object:
    import faiss

    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return index.search(x, k)


def pml_accuracy(x: np.ndarray, labels: np.ndarray) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from pytorch_metric_learning.utils.accuracy_calculator import (
            AccuracyCalculator,
        )
    calculator = AccuracyCalculator(
        include=(
            "precision_at_1",
            "r_precision",
            "mean_average_precision_at_r",
        ),
        # Its default asks for 29 GB at once at the size of SOP.
        k=int(np.bincount(labels).max()),
        device=torch.device("cpu"),
    )
    return calculator.get_accuracy(
        torch.from_numpy(x), torch.from_numpy(labels)
    )


def half_product(x: np.ndarray, side: int = 2048) -> None:
    """The scores of every pair once, one product per thread."""
    from threadpoolctl import threadpool_limits

    parts = blocks(len(x), side)

    def product(pair: tuple[slice, slice]) -> None:
        x[pair[0]] @ x[pair[1]].T

    pairs = [(a, b) for i, a in enumerate(parts) for b in parts[: i + 1]]
    cores = usable_cores()
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(cores) as pool:
        deque(pool.map(product, pairs), maxlen=0)


def all_against_all(scale: int, repeats: int, with_pml: bool) -> None:
    count, classes = 60_502 // scale, 11_316 // scale
    for signal, kind in ((0.45, "trained"), (0.0, "random")):
        x, labels = embeddings(count, 512, classes, signal)

        def ours(x: np.ndarray = x, labels: np.ndarray = labels) -> object:
            return evaluate_embeddings(
                x, labels, metrics=METRICS, memory=MEMORY
            )

        contestants = [
            Contestant(
                "faiss IndexFlatIP.search(k=21)", lambda x=x: faiss_search(x)
            ),
            Contestant("keras_dml R@{1,10,100,1000}, RP, MAP@R", ours),
            Contestant("half a matrix product", lambda x=x: half_product(x)),
        ]
        race(f"{count} × 512, {classes} classes, {kind}", contestants, repeats)
        if with_pml and signal:
            peer = Contestant(
                "pytorch-metric-learning P@1, RP, MAP@R",
                lambda x=x, labels=labels: pml_accuracy(x, labels),
            )
            race("… and with limited k", [contestants[1], peer], 1)


def full_ranking(scale: int) -> None:
    count, classes = 60_502 // scale, 11_316 // scale
    x, labels = embeddings(count, 512, classes, 0.45)
    names = (*METRICS, "map", "mrr", "minp")
    contestants = [
        Contestant(
            "keras_dml the same, MAP, MRR and mINP",
            lambda: evaluate_embeddings(
                x, labels, metrics=names, memory=MEMORY
            ),
        )
    ]
    race(f"{count} × 512, the whole ranking", contestants, 1)


def large_gallery(scale: int) -> None:
    gallery, labels = embeddings(1_000_000 // scale, 128, 50_000 // scale, 0.6)
    rows = np.random.default_rng(1).permutation(len(gallery))[: 10_000 // scale]
    noise = np.random.default_rng(2).standard_normal((len(rows), 128))
    queries = unit_rows(gallery[rows] + 0.02 * noise.astype(np.float32))
    contestants = [
        Contestant(
            f"keras_dml {METRICS[0]} … {METRICS[-1]}, 128MB",
            lambda: evaluate_embeddings(
                queries,
                labels[rows],
                gallery=gallery,
                gallery_labels=labels,
                metrics=METRICS,
                memory="128MB",
            ),
        )
    ]
    race(
        f"{len(queries)} queries, gallery {len(gallery)} × 128", contestants, 1
    )


def clusters(scale: int) -> None:
    count, classes = 60_502 // scale, 11_316 // scale
    x, labels = embeddings(count, 512, classes, 0.45)
    contestants = [
        Contestant(
            "keras_dml NMI, AMI, F1; 20 iterations, 1 seed",
            lambda: evaluate_embeddings(
                x, labels, metrics=("nmi", "ami", "f1")
            ),
        )
    ]
    race(f"{count} × 512 into {classes} clusters", contestants, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pml", action="store_true", help="needs 8 GB")
    parser.add_argument("--only", choices=[f.__name__ for f in PARTS])
    options = parser.parse_args()
    scale = 20 if options.quick else 1
    for part in PARTS:
        if options.only in (None, part.__name__):
            if part is all_against_all:
                part(scale, options.repeats, options.pml)
            else:
                part(scale)


PARTS = (all_against_all, full_ranking, large_gallery, clusters)

if __name__ == "__main__":
    main()
