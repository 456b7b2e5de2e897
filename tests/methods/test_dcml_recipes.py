from pathlib import Path

import pytest

from keras_dml import callbacks, data
from keras_dml.recipes import building
from keras_dml.recipes.files import load, validate
from tests.conftest import blobs

GLYPHS = Path(__file__).parents[2] / "recipes" / "glyphs"


def test_recipe_makes_the_model() -> None:
    recipe = load(GLYPHS / "dcml.yaml")
    objective = building.model(recipe).objective
    assert objective.compositor.num_compositors == 8
    images = blobs(64)
    sampler = building.sampler(recipe, images)
    assert type(sampler) is data.ClassBalanced
    assert building.callbacks(recipe, images, sampler) == []


def test_recipe_with_clusters_divides_the_data() -> None:
    recipe = load(GLYPHS / "dcml_clusters.yaml")
    images = blobs(64)
    sampler = building.sampler(recipe, images)
    assert isinstance(sampler, data.ClusterSampler)
    assert sampler.num_learners == 4
    (recluster,) = building.callbacks(recipe, images, sampler)
    assert isinstance(recluster, callbacks.Recluster)
    assert building.model(recipe).objective.compositor.num_compositors == 4


def test_a_division_of_nothing_is_refused() -> None:
    content = {
        "name": "x",
        "data": {"name": "glyphs"},
        "method": {"name": "dcml", "every": 3},
    }
    with pytest.raises(Exception, match="every.*tasks='metric'"):
        validate(content, "here")
