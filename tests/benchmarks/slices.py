"""How much the slices of embeddings agree about which images are alike.

For each finished run, its embedding of test images is cut into slices of equal
width. Printed is the mean correlation of the cosine similarities of two slices
over pairs of images of different classes, MAP@R of a slice alone (mean over
the slices), and MAP@R of the whole embedding, on those images.

    python tests/benchmarks/slices.py RUN RUN --slices 4 --images 2000
"""

import argparse
import os
from itertools import combinations

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import keras_dml as dml
from keras_dml import runs
from keras_dml.recipes import building


def map_at_r(x: np.ndarray, labels: np.ndarray) -> float:
    found = dml.evaluation.evaluate_embeddings(x, labels, metrics=("map@r",))
    return found["map@r"]


def measure(run: str, slices: int, images: int) -> tuple[float, float, float]:
    recipe = runs.load_recipe(run)
    test = building.splits(recipe).test
    # Whole classes, which all have images to find.
    order = np.random.default_rng(0).permutation(test.classes)
    counts = np.cumsum([(test.labels == c).sum() for c in order])
    chosen = test.select(np.isin(test.labels, order[counts <= images]))
    x = dml.evaluation.embed(runs.load_model(run), chosen)
    parts = np.array_split(x, slices, axis=1)
    parts = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in parts]
    apart = np.triu(chosen.labels[:, None] != chosen.labels, 1)
    cosines = [(part @ part.T)[apart] for part in parts]
    agreement = [
        np.corrcoef(cosines[i], cosines[j])[0, 1]
        for i, j in combinations(range(slices), 2)
    ]
    alone = [map_at_r(part, chosen.labels) for part in parts]
    return (
        float(np.mean(agreement)),
        float(np.mean(alone)),
        map_at_r(x, chosen.labels),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--images", type=int, default=2000)
    given = parser.parse_args()
    for run in given.runs:
        agreement, alone, whole = measure(run, given.slices, given.images)
        print(
            f"{run}: correlation {agreement:.3f}, a slice {alone:.4f}, "
            f"all {whole:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
