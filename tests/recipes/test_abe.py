from pathlib import Path

import numpy as np
import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, building, load

RECIPE = Path(__file__).parents[2] / "recipes" / "glyphs" / "abe.yaml"
PAIRS = "method.pair_batches=true"


def test_the_recipe_makes_its_model() -> None:
    recipe = load(RECIPE, ("method.num_learners=2", "method.variant=heads"))
    model = building.model(recipe)
    assert len(model.head.ensemble.trunks) == 2
    assert model.compute_output_shape((None, 48, 48, 1)) == (None, 128)


def test_pair_batches_have_as_many_images_as_batches_say(images) -> None:
    settings = ("batches.classes_per_batch=6", "batches.images_per_class=2")
    recipe = load(RECIPE, (PAIRS, "method.pairs=constructed", *settings))
    sampler = building.sampler(recipe, images)
    assert isinstance(sampler, data.PairSampler)
    labels = images.labels[sampler.plan(0)]
    assert labels.shape[1] == 12
    same = labels[:, :6] == labels[:, 6:]
    assert np.all(same == [True] * 3 + [False] * 3)
    plain = building.sampler(load(RECIPE, settings), images)
    assert isinstance(plain, data.ClassBalanced)


def test_constructed_pairs_need_pair_batches() -> None:
    with pytest.raises(RecipeError, match="`method.pairs`.*pair_batches: true"):
        load(RECIPE, ("method.pairs=constructed",))
