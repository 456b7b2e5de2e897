"""Runs of recipes whose data are not images."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import data, recipes, reports, runs
from keras_dml.data import ArraySet, DataSplits
from keras_dml.data.hashing import digest
from keras_dml.runs.measuring import Changes, remeasure

RECIPE = """
name: vectors
data: {{name: vectors, classes: 12}}
backbone: {{name: {backbone}}}
method: {{name: baseline, embedding_dim: 4, loss: contrastive}}
batches: {{classes_per_batch: 2, images_per_class: 3}}
epochs: 1
evaluation: {{metrics: [recall@1, map@r]}}
"""


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A recipe for a data set registered by this test."""
    monkeypatch.setattr(data.DATASETS, "_entries", dict(data.DATASETS))

    @data.dataset("vectors", "random vectors")
    def vectors(classes: int, seed: int = 0) -> DataSplits:
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(classes), 6)
        x = rng.normal(size=(len(labels), 8)) + labels[:, None] % 5
        examples = ArraySet(x.astype("float32"), labels)
        return DataSplits.by_class(examples, "vectors", seed=seed)

    network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16)])
    network.save(tmp_path / "network.keras")
    path = tmp_path / "vectors.yaml"
    path.write_text(RECIPE.format(backbone=tmp_path / "network.keras"))
    return path


@pytest.mark.slow
def test_run_is_trained_measured_again_and_reported(
    recipe: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    outcome = runs.train(recipes.load(recipe), folder, verbose=0)
    again = remeasure(folder)
    assert dict(again.results) == dict(outcome.after)
    assert outcome.test_set == digest(again.images)
    table = Changes(again, again).every_query()
    assert table[1][:2] == ["0", "0"]
    page = reports.report(folder, num_queries=4).read_text()
    assert 'id="figure-map"' in page
    assert "vectors" in page


def test_view_requires_images(recipe: Path, tmp_path: Path) -> None:
    resized = recipes.load(recipe, ("view.resize=64",))
    with pytest.raises(ValueError, match="`view` of a recipe requires a back"):
        runs.train(resized, tmp_path / "run", verbose=0)
