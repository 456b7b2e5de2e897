import inspect
from pathlib import Path

import pytest

from keras_dml import callbacks, data, methods
from keras_dml.recipes import building
from keras_dml.recipes.files import load, validate
from keras_dml.recipes.schema import DCML
from tests.conftest import blobs

GLYPHS = Path(__file__).parents[2] / "recipes" / "glyphs"


def test_recipes_can_set_what_the_method_takes() -> None:
    parameters = inspect.signature(methods.dcml).parameters
    common = {"backbone", "loss_weights", "kwargs"}
    division = {
        "every", "partition", "cluster_space", "schedule", "fill", "phases",
    }  # fmt: skip
    assert set(DCML.model_fields) - {"name"} - division == (
        set(parameters) - common
    )
    defaults = DCML(name="dcml")
    for name in set(parameters) - common:
        assert getattr(defaults, name) == parameters[name].default


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
