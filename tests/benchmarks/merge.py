"""Divide and conquer with proxies: what the merged embedding starts from.

A toy of 80 Gaussian classes, half of them for training, in 64 dimensions that
a random network has bent. The merged phase starts from the initial proxies,
from those that the learners learned, or from the means of the classes.
Printed is MAP@R on the test classes, over seeds, with what is paired.

    python tests/benchmarks/merge.py --seeds 5
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_dml as dml
from keras_dml.runs.benchmark.comparison import (
    mean_interval,
    paired_difference,
)

STARTS = ("initial", "learned", "class_means")
CLASSES, IMAGES, LATENT, SIZE = 80, 30, 16, 64
EPOCHS, DIM, LEARNERS = 20, 32, 4


def examples(seed: int) -> tuple[dml.data.ArraySet, dml.data.ArraySet]:
    """Training and test set."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    centers = rng.normal(size=(CLASSES, LATENT))
    latent = centers[labels] + rng.normal(0, 0.6, (len(labels), LATENT))
    hidden = np.tanh(latent @ rng.normal(size=(LATENT, SIZE)) / 4)
    x = (hidden @ rng.normal(size=(SIZE, SIZE)) / 8).astype("float32")
    is_train = labels < CLASSES // 2
    return tuple(
        dml.data.ArraySet(x[rows], labels[rows])
        for rows in (is_train, ~is_train)
    )


def measured(start: str, seed: int) -> float:
    """MAP@R on the test classes after a training."""
    keras.utils.set_random_seed(seed)
    train, test = examples(seed)
    inputs = keras.Input((SIZE,))
    hidden = keras.layers.Dense(128, activation="relu")(inputs)
    model = dml.methods.divide_and_conquer(
        keras.Model(inputs, hidden),
        embedding_dim=DIM,
        num_learners=LEARNERS,
        loss={"name": "proxy_nca", "num_classes": CLASSES // 2},
        merged_start=start,
    )
    model.compile(keras.optimizers.Adam(1e-3))
    sampler = dml.data.ClusterSampler(
        train.labels, 10, 4, num_learners=LEARNERS, seed=seed
    )
    model.fit(
        dml.data.pipeline(train, sampler, seed=seed),
        epochs=EPOCHS,
        callbacks=[dml.callbacks.Recluster(train, sampler, seed=seed)],
        verbose=0,
    )
    return dml.evaluation.evaluate(model, test, metrics=("map@r",))["map@r"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    values = {x: [measured(x, seed) for seed in seeds] for x in STARTS}
    for start, found in values.items():
        mean = mean_interval(found)
        gain = paired_difference(values["initial"], found)
        print(
            f"{start:12} {mean.estimate:.4f} ± {mean.high - mean.estimate:.4f}"
            f"; over initial {gain.estimate:+.4f} [{gain.low:+.4f}, "
            f"{gain.high:+.4f}], p {gain.p_value:.3f}; "
            + " ".join(f"{x:.3f}" for x in found),
            flush=True,
        )


if __name__ == "__main__":
    main()
