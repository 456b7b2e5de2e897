"""G of ABE on M times the batch, beside its bound and other ways to run it.

    python tests/benchmarks/shared_trunk.py

CPU time on one thread, forward and backward, in turns; G is the upper part of
small_convnet, on masked maps. The bound is a plain matrix product with as many
multiply-adds.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2]))

import keras
import tensorflow as tf

from keras_dml import backbones
from keras_dml.backbones import splitting
from keras_dml.backbones.networks import known_branches
from tests.benchmarks import operations

BATCH, LEARNERS, REPEATS = 128, 4, 15


def trunk() -> keras.Model:
    whole = backbones.get("small_convnet", input_shape=(48, 48, 1))
    branch, _ = known_branches()[whole.name]
    return splitting.copy_between(whole, branch)


def gradients(g: keras.Model, groups: int = 1) -> Callable[[Any], Any]:
    """Forward and backward, group by group of the batch."""

    def run(x: Any) -> Any:
        parts = tf.split(x, groups)
        with tf.GradientTape() as tape:
            tape.watch(parts)
            outputs = [g(part, training=True) for part in parts]
            loss = tf.add_n([tf.reduce_sum(y * y) for y in outputs])
        return tape.gradient(loss, [*g.trainable_variables, *parts])

    return run


def masked(x: Any, masks: Any) -> Any:
    """Products of maps and masks, (B, M, …), as M·B maps."""
    return tf.reshape(x[:, None] * masks, (-1, *x.shape[1:]))


@tf.custom_gradient
def masked_by_hand(x: Any, masks: Any) -> Any:
    """The same; the tape keeps none of the products."""

    def gradient(upstream: Any) -> Any:
        upstream = tf.reshape(upstream, tf.shape(masks))
        return tf.reduce_sum(upstream * masks, 1), upstream * x[:, None]

    return masked(x, masks), gradient


def with_masks(g: keras.Model, product: Any) -> Callable[[Any, Any], Any]:
    @tf.function
    def run(x: Any, masks: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, masks])
            y = g(product(x, masks), training=True)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, [*g.trainable_variables, x, masks])

    return run


def product_of(count: float, size: int = 1024) -> Callable[[], Any]:
    """Matrix products with about as many multiply-adds."""
    x = tf.random.normal((size, size))
    product = tf.function(lambda: tf.matmul(x, x))
    return lambda: [product() for _ in range(round(count / size**3))]


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    g = trunk()
    shape = g.input_shape[1:]
    one = tf.random.normal((BATCH, *shape))
    every = tf.random.normal((BATCH * LEARNERS, *shape))
    masks = tf.random.uniform((BATCH, LEARNERS, *shape))
    whole = tf.function(gradients(g))
    grouped = tf.function(gradients(g, LEARNERS))
    compiled = tf.function(gradients(g), jit_compile=True)
    by_tape, by_hand = with_masks(g, masked), with_masks(g, masked_by_hand)
    count = operations.counted(
        gradients(g), tf.TensorSpec(every.shape, "float32")
    )
    runs: dict[str, Callable[[], Any]] = {
        "G on M·B maps": lambda: whole(every),
        "a matrix product of as many multiply-adds": product_of(count),
        "G on B maps": lambda: whole(one),
        "G on M·B maps, in M groups": lambda: grouped(every),
        "G on M·B maps, XLA": lambda: compiled(every),
        "masks, and G": lambda: by_tape(one, masks),
        "masks with a gradient by hand, and G": lambda: by_hand(one, masks),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if repeat:  # The first traces.
                times[name].append(1e3 * (time.process_time() - start))
    medians = {name: statistics.median(x) for name, x in times.items()}
    base = next(iter(medians.values()))
    print("| | CPU ms | relative |")
    print("|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.1f} | {median / base:.2f} |")


if __name__ == "__main__":
    main()
