"""Speed and memory of the losses, beside pytorch-metric-learning.

Forward and backward of one batch, both libraries in one run and turn by
turn, medians and interquartile ranges after a warm-up. The slowest peers
need ten seconds and more a step, the whole run about a quarter of an hour:

    python tests/benchmarks/losses.py                 # all, both sizes
    python tests/benchmarks/losses.py margin triplet  # names with these
    python tests/benchmarks/losses.py --memory        # peak at B = 2048
    python tests/benchmarks/losses.py --threads 1 --cpu-time
    python tests/benchmarks/losses.py --repeats 50 --batch 112

Our side runs as a TensorFlow graph and compiled by XLA. A ratio below 1
means that ours is faster.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from keras_dml import losses

SIZES = ((112, 512, 28), (512, 128, 128))  # batch, dimension, classes
MEMORY_SIZE = (2048, 128, 512)

OURS: dict[str, Callable[[int, int], losses.MetricLoss]] = {
    "contrastive": lambda c, d: losses.ContrastiveLoss(
        distance="euclidean", reduction="mean_nonzero"
    ),
    "triplet semihard": lambda c, d: losses.TripletLoss(),
    "triplet all": lambda c, d: losses.TripletLoss(mining="all"),
    "triplet hard": lambda c, d: losses.TripletLoss(mining="hard"),
    "margin + dws": lambda c, d: losses.MarginLoss(),
    "multi-similarity": lambda c, d: losses.MultiSimilarityLoss(mining="all"),
    "multi-similarity + miner": lambda c, d: losses.MultiSimilarityLoss(),
    "nt-xent": lambda c, d: losses.NTXentLoss(),
    "supcon": lambda c, d: losses.SupConLoss(),
    "circle": lambda c, d: losses.CircleLoss(),
    "lifted": lambda c, d: losses.LiftedStructureLoss(),
    "fastap": lambda c, d: losses.FastAPLoss(),
    "angular": lambda c, d: losses.AngularLoss(),
    "histogram": lambda c, d: losses.HistogramLoss(),
    "proxy-nca": lambda c, d: losses.ProxyNCALoss(c, exclude_positive=False),
    "proxy-anchor": lambda c, d: losses.ProxyAnchorLoss(c),
    "softtriple": lambda c, d: losses.SoftTripleLoss(c, tau=0.0),
    "generalized lifted": lambda c, d: losses.LiftedStructureLoss(
        generalized=True
    ),
    "smooth-ap": lambda c, d: losses.SmoothAPLoss(include_self=True),
    "pnp": lambda c, d: losses.PNPLoss(include_self=True),
    "recall@k": lambda c, d: losses.RecallAtKLoss(),
    "nca": lambda c, d: losses.NCALoss(),
    "instance": lambda c, d: losses.InstanceLoss(),
    "tuplet margin": lambda c, d: losses.TupletMarginLoss(),
    "intra-pair variance": lambda c, d: losses.IntraPairVarianceLoss(),
    "ranked list": lambda c, d: losses.RankedListLoss(),
    "dynamic soft margin": lambda c, d: losses.DynamicSoftMarginLoss(),
    "selectively contrastive": (
        lambda c, d: losses.SelectivelyContrastiveLoss()
    ),
    "snr contrastive": lambda c, d: losses.ContrastiveLoss(distance="snr"),
    "decoupled contrastive": lambda c, d: losses.DecoupledContrastiveLoss(),
    "hyperbolic": lambda c, d: losses.HyperbolicContrastiveLoss(),
    "vicreg": lambda c, d: losses.VICRegLoss(),
    "barlow twins": lambda c, d: losses.BarlowTwinsLoss(),
    "normalized softmax": lambda c, d: losses.NormalizedSoftmaxLoss(c),
    "arcface": lambda c, d: losses.ArcFaceLoss(c),
    "sub-center arcface": lambda c, d: losses.SubCenterArcFaceLoss(c),
    "sphereface": lambda c, d: losses.SphereFaceLoss(c),
    "p2sgrad": lambda c, d: losses.P2SGradLoss(c),
    "dynamic arcface": lambda c, d: losses.DynamicArcFaceLoss(
        c, range(1, c + 1)
    ),
    "multi-label supcon": lambda c, d: losses.MultiSupConLoss(),
    "matryoshka contrastive": lambda c, d: losses.MatryoshkaLoss(
        losses.ContrastiveLoss(), (d // 4, d // 2, d)
    ),
    "hist": lambda c, d: losses.HISTLoss(c),
}
"""name → (classes, dimension) → our loss."""

TWO_VIEWS = ("vicreg", "barlow twins")
"""Losses of a batch and a second view of it, each image a class."""
LABEL_SETS = ("multi-label supcon",)
"""Losses of examples with several labels each, here one."""


def peers() -> dict[str, Callable[[int, int], Any]]:
    """name → (classes, dimension) → their loss."""
    from pytorch_metric_learning import losses as theirs
    from pytorch_metric_learning.distances import LpDistance

    def triplets(c: int, d: int) -> Any:
        return theirs.TripletMarginLoss(0.2, distance=LpDistance(power=2))

    def plain(name: str) -> Callable[[int, int], Any]:
        return lambda c, d: getattr(theirs, name)()

    def of_classes(name: str) -> Callable[[int, int], Any]:
        return lambda c, d: getattr(theirs, name)(
            num_classes=c, embedding_size=d
        )

    return {
        "contrastive": plain("ContrastiveLoss"),
        "triplet semihard": triplets,
        "triplet all": triplets,
        "triplet hard": triplets,
        "margin + dws": plain("MarginLoss"),
        "multi-similarity": plain("MultiSimilarityLoss"),
        "multi-similarity + miner": plain("MultiSimilarityLoss"),
        "nt-xent": lambda c, d: theirs.NTXentLoss(0.1),
        "supcon": plain("SupConLoss"),
        "circle": plain("CircleLoss"),
        "lifted": plain("LiftedStructureLoss"),
        "fastap": plain("FastAPLoss"),
        "angular": plain("AngularLoss"),
        "histogram": plain("HistogramLoss"),
        "proxy-nca": of_classes("ProxyNCALoss"),
        "proxy-anchor": of_classes("ProxyAnchorLoss"),
        "softtriple": of_classes("SoftTripleLoss"),
        "generalized lifted": plain("GeneralizedLiftedStructureLoss"),
        "smooth-ap": plain("SmoothAPLoss"),
        "pnp": lambda c, d: theirs.PNPLoss(variant="Dq"),
        "nca": plain("NCALoss"),
        "instance": plain("InstanceLoss"),
        "tuplet margin": plain("TupletMarginLoss"),
        "intra-pair variance": plain("IntraPairVarianceLoss"),
        "ranked list": lambda c, d: theirs.RankedListLoss(0.4, 10),
        "snr contrastive": plain("SignalToNoiseRatioContrastiveLoss"),
        "vicreg": plain("VICRegLoss"),
        "normalized softmax": of_classes("NormalizedSoftmaxLoss"),
        "arcface": of_classes("ArcFaceLoss"),
        "sub-center arcface": of_classes("SubCenterArcFaceLoss"),
        "sphereface": of_classes("SphereFaceLoss"),
        "p2sgrad": lambda c, d: theirs.P2SGradLoss(d, c),
    }


def miner_of(name: str) -> Any:
    """Their miner, of the losses that take one."""
    from pytorch_metric_learning import miners
    from pytorch_metric_learning.distances import LpDistance

    squared = {"distance": LpDistance(power=2)}
    factories: dict[str, Callable[[], Any]] = {
        "triplet semihard": lambda: miners.TripletMarginMiner(
            0.2, type_of_triplets="semihard", **squared
        ),
        "triplet hard": lambda: miners.BatchHardMiner(**squared),
        "margin + dws": miners.DistanceWeightedMiner,
        "multi-similarity + miner": miners.MultiSimilarityMiner,
    }
    return factories[name]() if name in factories else lambda x, labels: None


def inputs(batch: int, dim: int, classes: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(batch, dim)).astype("float32")
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.repeat(np.arange(classes), batch // classes), x


def our_step(name: str, size: tuple[int, int, int], jit: bool) -> Callable:
    """One forward and backward pass of ours, to the end."""
    batch, dim, classes = size
    labels, x = (tf.constant(value) for value in inputs(*size))
    if name in LABEL_SETS:
        labels = tf.one_hot(labels, classes, True, False)
    loss = OURS[name](classes, dim)
    owner = keras.layers.Layer()
    loss.build(owner, dim)
    weights = [v.value for v in owner.trainable_variables]

    def value_of(x: Any) -> Any:
        if name not in TWO_VIEWS:
            return loss(labels, x)
        images, other = tf.range(batch), tf.reverse(x, [1])
        return tf.reduce_mean(loss.per_example(images, x, images, other))

    @tf.function(jit_compile=jit)
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = value_of(x)
        return value, tape.gradient(value, [x, *weights])

    def run() -> None:
        float(step()[0])

    return run


def their_step(name: str, size: tuple[int, int, int]) -> Callable:
    """One forward and backward pass of theirs, to the end."""
    import torch

    batch, dim, classes = size
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels, x = (torch.tensor(v, device=device) for v in inputs(*size))
    loss, mine = peers()[name](classes, dim).to(device), miner_of(name)

    def run() -> None:
        leaf = x.clone().requires_grad_(True)
        pairs = mine(leaf, labels)
        if name in TWO_VIEWS:
            value = loss(leaf, ref_emb=leaf.flip(1))
        else:
            value = loss(leaf, labels, pairs)
        value.backward()
        value.item()

    return run


class Timing(NamedTuple):
    """Milliseconds of a step, over all repeats."""

    median: float
    spread: float  # between the quartiles

    def __str__(self) -> str:
        return f"{self.median:9.2f} ±{self.spread:8.2f}"


def timings(
    steps: list[Callable], repeats: int, clock: Callable[[], float]
) -> list[Timing]:
    """Measures all steps turn by turn, after a warm-up."""
    for step in steps:
        step()
        step()
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(repeats):
        for step, taken in zip(steps, times, strict=True):
            begin = clock()
            step()
            taken.append(1e3 * (clock() - begin))
    quartiles = [statistics.quantiles(taken, n=4) for taken in times]
    return [Timing(middle, high - low) for low, middle, high in quartiles]


def use_threads(count: int) -> None:
    """Limits both libraries to as many threads."""
    import torch

    torch.set_num_threads(count)
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def speed(
    names: list[str],
    sizes: list[tuple[int, int, int]],
    repeats: int,
    clock: Callable[[], float],
) -> None:
    """Prints all timings; losses that the peer lacks are measured alone."""
    for size in sizes:
        print(f"\nB={size[0]} D={size[1]} ({size[2]} classes), ms, ± IQR")
        print(
            f"{'loss':25}{'graph':>19}{'XLA':>19}{'theirs':>19}"
            f"{'graph/th':>10}{'XLA/th':>8}"
        )
        for name in names:
            steps = [our_step(name, size, jit=jit) for jit in (False, True)]
            if name not in peers():
                graph, xla = timings(steps, repeats, clock)
                print(f"{name:25}{graph}{xla}{'–':>19}", flush=True)
                continue
            steps.append(their_step(name, size))
            graph, xla, peer = timings(steps, repeats, clock)
            print(
                f"{name:25}{graph}{xla}{peer}"
                f"{graph.median / peer.median:10.3f}"
                f"{xla.median / peer.median:8.3f}",
                flush=True,
            )


def memory(names: list[str]) -> None:
    """Prints the peak memory of each loss, in a process of its own."""
    batch = MEMORY_SIZE[0]
    unit = batch * batch * 4 / 2**20
    print(f"\npeak at B={batch}, and in (B, B) float32 matrices")
    for name in names:
        command = [sys.executable, __file__, "--measure-memory", name]
        result = subprocess.run(
            command, check=True, capture_output=True, text=True
        )
        peak = float(result.stdout.split()[-1])
        print(f"{name:26}{peak:9.0f} MiB{peak / unit:9.1f}", flush=True)


def measure_memory(name: str) -> None:
    """Prints by how many MiB a large batch raises the peak."""
    gpus = tf.config.list_physical_devices("GPU")
    our_step(name, (64, 128, 16), jit=False)()
    before = _peak(bool(gpus))
    our_step(name, MEMORY_SIZE, jit=False)()
    print(_peak(bool(gpus)) - before)


def _peak(on_gpu: bool) -> float:
    if on_gpu:
        peak: float = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return peak / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; none: all")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument(
        "--batch",
        type=int,
        choices=[size[0] for size in SIZES],
        help="measure one size only",
    )
    parser.add_argument("--threads", type=int, help="limit of both sides")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure processor time, for a machine that is busy",
    )
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--measure-memory", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.measure_memory:
        measure_memory(arguments.measure_memory)
        return
    names = [
        name
        for name in OURS
        if not arguments.names or any(part in name for part in arguments.names)
    ]
    if arguments.memory:
        memory(names)
    else:
        if arguments.threads:
            use_threads(arguments.threads)
        clock = time.process_time if arguments.cpu_time else time.perf_counter
        sizes = [s for s in SIZES if arguments.batch in (None, s[0])]
        speed(names, sizes, arguments.repeats, clock)


if __name__ == "__main__":
    main()
