"""Runs whose backbone is frozen train on features computed once."""

import numpy as np
import pytest

from keras_dml import recipes, runs
from tests.recipes.builds import data_of, model_of
from tests.runs.small_run import QUICK, write_recipe

FROZEN = (
    *QUICK,
    "method={name: baseline, embedding_dim: 8, loss: contrastive}",
    "backbone.freeze=true",
    "augmentation.crop=center",
    "name=frozen",
)


@pytest.mark.slow
def test_run_is_the_same_with_and_without_features(tmp_path) -> None:
    path = write_recipe(tmp_path)
    none, memory = (
        runs.train(
            recipes.load(path, (*FROZEN, f"backbone.feature_cache={cache}")),
            tmp_path / cache,
            verbose=0,
        )
        for cache in ("none", "memory")
    )
    assert memory.after == none.after
    assert memory.monitored == none.monitored
    assert "features" in memory.seconds and "features" not in none.seconds
    # The saved model takes images.
    model = runs.load_model(tmp_path / "memory")
    assert model.input_shape == (None, 16, 16, 1)


@pytest.mark.slow
def test_runs_with_other_seeds_share_features(tmp_path, monkeypatch) -> None:
    """Held-out classes differ, but features of an image are the same."""
    monkeypatch.setenv("KERAS_DML_HOME", str(tmp_path / "cache"))
    path = write_recipe(tmp_path)
    changes = (
        *FROZEN,
        "augmentation.crop=random",
        "backbone.feature_views=2",
        "backbone.feature_cache=disk",
    )
    held_out, folders, weights = [], [], None
    for seed in (0, 1):
        recipe = recipes.load(path, (*changes, f"seed={seed}"))
        splits = data_of(recipe)
        model = model_of(recipe)
        # The network of the first run, as a pretrained one would be.
        if weights is not None:
            model.backbone.set_weights(weights)
        weights = model.backbone.get_weights()
        seen = recipe.backbone.features(
            model, splits, recipe.augmentation, with_test=True
        )
        held_out.append(set(seen.validation.labels))
        folders.append(set((tmp_path / "cache" / "features").iterdir()))
        for part in ("train", "validation", "test"):
            images, features = splits.part(part), seen.part(part)
            np.testing.assert_array_equal(images.labels, features.labels)
            rows = [0, len(images) - 1]
            np.testing.assert_allclose(
                model.predict(images.select(rows).inputs(...), verbose=0),
                model.predict(features.select(rows).inputs(...), verbose=0),
                atol=1e-6,
            )
        assert seen.train.num_views == 2
    assert held_out[0] != held_out[1]
    assert len(folders[0]) == 3
    assert folders[0] == folders[1]
