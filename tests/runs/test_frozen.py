"""Runs whose backbone is frozen train on features computed once."""

import pytest

from keras_dml import recipes, runs
from tests.runs.small_run import QUICK, write_recipe

FROZEN = (
    *QUICK,
    "method={name: baseline, embedding_dim: 8, loss: contrastive}",
    "backbone.freeze=true",
    "augmentation.crop=center",
    "name=frozen",
)


@pytest.mark.slow
def test_a_run_is_the_same_with_and_without_features(tmp_path) -> None:
    path = write_recipe(tmp_path)
    found = {}
    for cache in ("none", "memory"):
        recipe = recipes.load(
            path, (*FROZEN, f"backbone.feature_cache={cache}")
        )
        found[cache] = runs.train(recipe, tmp_path / cache, verbose=0)
    assert found["memory"].after == found["none"].after
    assert found["memory"].monitored == found["none"].monitored
    assert "features" in found["memory"].seconds
    assert "features" not in found["none"].seconds
    # The saved model takes images.
    model = runs.load_model(tmp_path / "memory")
    assert model.input_shape == (None, 16, 16, 1)


def test_views_that_no_head_would_see(tmp_path) -> None:
    path = write_recipe(tmp_path)
    with pytest.raises(ValueError, match="set `backbone.feature_views`"):
        recipes.load(path, (*FROZEN, "augmentation.flip=true"))
    some = recipes.load(
        path, (*FROZEN, "augmentation.flip=true", "backbone.feature_views=2")
    )
    assert some.backbone.feature_views == 2
