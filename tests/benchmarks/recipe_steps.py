"""Processor time of a training step of recipes, over that of the first.

Models take turns, update by update, in one process, so that whatever else the
machine does is shared by all. Batches are those of the recipe, of noise:

    python tests/benchmarks/recipe_steps.py glyphs/baseline glyphs/soft_triple
    python tests/benchmarks/recipe_steps.py --steps 50 glyphs/baseline …

Printed are the median time of a step and the median over turns of its ratio.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_dml import MetricModel, recipes
from keras_dml.recipes import building

Batch = tuple[np.ndarray, np.ndarray]


def prepared(name: str) -> tuple[MetricModel, Batch]:
    """The model of a recipe, after its first step, and a batch of noise."""
    recipe = recipes.load(name)
    sampler = building.sampler(recipe, building.splits(recipe).train)
    model = building.model(recipe, sampler)
    rows = sampler.plan(0)[0]
    size = (len(rows), *model.input_shape[1:])
    images = np.random.default_rng(0).uniform(0, 255, size).astype("float32")
    batch = images, np.unique(sampler.labels, return_inverse=True)[1][rows]
    model.train_on_batch(*batch)
    return model, batch


def time_of_step(model: MetricModel, batch: Batch) -> float:
    start = time.process_time()
    model.train_on_batch(*batch)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    models = {name: prepared(name) for name in options.names}
    times = np.array(
        [
            [time_of_step(*model) for model in models.values()]
            for _ in range(options.steps)
        ]
    )
    ratios = times / times[:, :1]
    for column, name in enumerate(models):
        seconds, ratio = np.median([times, ratios], axis=1)[:, column]
        print(f"{name:24} {1000 * seconds:7.1f} ms {ratio:5.2f}")


if __name__ == "__main__":
    main()
