"""Whether to train on JPEG files that are decoded smaller makes a difference.

Run from the root of the project, with a folder of photographs in a folder for
each class, such as Caltech-101:

    python tests/benchmarks/scaled_reading.py caltech101    # 20 minutes

Photographs are scaled up, so that windows are decoded at a half to an eighth.
For each seed, the same network is trained on the same windows, decoded in this
way and at full size, and measured on classes that it has not seen.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from PIL import Image
from scipy import stats

import keras_dml as dml
from keras_dml.data import encoded

CLASSES, PHOTOGRAPHS, FACTOR = 20, 20, 5
SIDE, EPOCHS, SEEDS = 48, 8, 5
METRICS = ("recall@1", "map@r")


def scaled_up(source: Path, target: Path) -> tuple[dml.data.ImageSet, ...]:
    """Photographs of the first and of the last classes, larger."""
    folders = sorted(x for x in source.iterdir() if x.is_dir())
    sets = []
    for some in (folders[:CLASSES], folders[-CLASSES:]):
        paths = []
        for folder in some:
            for file in sorted(folder.iterdir())[:PHOTOGRAPHS]:
                with Image.open(file) as image:
                    height, width = FACTOR * image.height, FACTOR * image.width
                    large = image.convert("RGB").resize((width, height))
                paths.append(target / f"{len(sets)}-{len(paths)}.jpg")
                large.save(paths[-1], quality=90)
        labels = np.arange(CLASSES).repeat(PHOTOGRAPHS)
        sets.append(dml.data.ImageSet([*map(str, paths)], labels))
    return tuple(sets)


def trained(
    train: dml.data.ImageSet, test: dml.data.ImageSet, seed: int
) -> list[float]:
    """The metrics of a network that has been trained with a seed."""
    keras.utils.set_random_seed(seed)
    model = dml.methods.baseline(
        dml.backbones.get("small_convnet", input_shape=(SIDE, SIDE, 3)),
        embedding_dim=64,
        loss="multi_similarity",
    )
    sampler = dml.data.ClassBalanced(
        train.labels, classes_per_batch=10, images_per_class=4, seed=seed
    )
    batches = dml.data.pipeline(
        train, sampler, size=SIDE, crop="random_resized", flip=True, seed=seed
    )
    model.compile(keras.optimizers.Adam(1e-3))
    model.fit(batches, epochs=EPOCHS, verbose=0)
    results = dml.evaluation.evaluate(model, test, metrics=METRICS)
    return [results[name] for name in METRICS]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photographs", type=Path)
    source = parser.parse_args().photographs
    scales = encoded._SCALES
    found = np.empty((2, SEEDS, len(METRICS)))
    with tempfile.TemporaryDirectory() as folder:
        sets = scaled_up(source, Path(folder))
        for seed in range(SEEDS):
            for row, allowed in enumerate((scales, scales[:1])):
                encoded._SCALES = allowed
                found[row, seed] = trained(*sets, seed)
                how = "smaller" if row == 0 else "whole"
                print(seed, how, found[row, seed].round(4), flush=True)
    margin = stats.t.ppf(0.975, SEEDS - 1) / SEEDS**0.5
    for column, name in enumerate(METRICS):
        smaller, whole = found[..., column]
        for what, values in (
            ("smaller", smaller), ("whole", whole), ("change", smaller - whole)
        ):  # fmt: skip
            half = margin * values.std(ddof=1)
            print(f"{name}, {what}: {values.mean():.4f} ± {half:.4f}")


if __name__ == "__main__":
    main()
