"""What it costs to compare the examples of all replicas with each other.

Steps of the same model on logical devices of the CPU, which share its cores,
turn about: with `gather="replicas"`, with `gather="none"`, and a plain
`keras.Model` with the loss in `compile`, which Keras trains without gathering.

    python tests/benchmarks/gathering.py 2     # replicas
    python tests/benchmarks/gathering.py 4

Processor time of all threads, the median of steps, and the least and largest
share of five fifths of them. On devices of their own, the loss of the whole
batch is computed by all at a time, and what they send takes the time of the
links: the bytes are those of docs/guides/devices.md.
"""

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from keras_dml import backbones, losses, methods

SIDE, DIM = 64, 128
BATCHES = (128, 512)
STEPS, WARM_UP = 40, 4


def models(strategy: tf.distribute.Strategy) -> dict[str, keras.Model]:
    """The same network, trained in three ways."""
    found: dict[str, keras.Model] = {}
    with strategy.scope():
        for gather in ("replicas", "none"):
            found[gather] = methods.baseline(
                backbones.small_convnet((SIDE, SIDE, 3)),
                embedding_dim=DIM,
                loss=losses.ContrastiveLoss(),
                gather=gather,
            )
            found[gather].compile("adam", jit_compile=False)
        backbone = backbones.small_convnet((SIDE, SIDE, 3))
        x = keras.layers.GlobalAveragePooling2D()(backbone.output)
        x = keras.layers.UnitNormalization()(keras.layers.Dense(DIM)(x))
        found["plain"] = keras.Model(backbone.input, x)
        found["plain"].compile(
            "adam", losses.ContrastiveLoss(), jit_compile=False
        )
        found["plain"].optimizer.build(found["plain"].trainable_variables)
    return found


def milliseconds(
    found: dict[str, keras.Model], strategy: Any, batch: int
) -> dict[str, list[float]]:
    """Processor time of steps by model, taken turn about."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (batch, SIDE, SIDE, 3), "uint8")
    data = tf.data.Dataset.from_tensors((images, np.arange(batch) // 4))
    data = data.repeat()
    taken: dict[str, list[float]] = {name: [] for name in found}
    iterators = {}
    for name, model in found.items():
        model.make_train_function()
        iterators[name] = iter(strategy.experimental_distribute_dataset(data))
    for step in range(WARM_UP + STEPS):
        for name, model in found.items():
            begin = time.process_time()
            logs = model.train_function(iterators[name])
            keras.tree.map_structure(np.asarray, logs)
            if step >= WARM_UP:
                taken[name].append(1e3 * (time.process_time() - begin))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("replicas", type=int)
    replicas = parser.parse_args().replicas
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(replicas)]
    )
    found = models(strategy)
    print("R    B  replicas  none  plain  of a step (fifths)", flush=True)
    for batch in BATCHES:
        taken = milliseconds(found, strategy, batch)
        ms = {name: statistics.median(x) for name, x in taken.items()}
        shares = [
            1
            - statistics.median(taken["none"][i::5])
            / statistics.median(taken["replicas"][i::5])
            for i in range(5)
        ]
        print(
            f"{replicas} {batch:4} {ms['replicas']:9.1f} {ms['none']:5.1f} "
            f"{ms['plain']:6.1f}  {1 - ms['none'] / ms['replicas']:.1%} "
            f"({min(shares):.1%} to {max(shares):.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
