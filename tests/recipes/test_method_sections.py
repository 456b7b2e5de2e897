"""Sections of methods are what their factories' signatures say."""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np
import pytest

from keras_dml import losses, methods, runs
from keras_dml.methods.declaration import find
from keras_dml.recipes import Recipe, RecipeError, dump
from keras_dml.recipes.files import validate
from keras_dml.recipes.signatures import fields_of
from tests.conftest import blobs
from tests.recipes.builds import callbacks_of, model_of, sampler_of


def recipe_of(method: dict[str, Any], num_views: int = 1) -> Recipe:
    content = {
        "name": "run",
        "data": {"name": "glyphs"},
        "method": method,
        "augmentation": {"num_views": num_views},
    }
    return validate(content, "recipe.yaml")


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_argument_is_a_key_with_the_same_default(name) -> None:
    factory, traits = find(name)
    parameters = inspect.signature(factory).parameters
    section = recipe_of({"name": name}, num_views=2).method.model_dump()
    common = {"backbone", "loss_weights", "kwargs"}
    assert section.pop("name") == name
    momentum = {"ema_momentum"}  # Of `MetricModel`, by `kwargs`.
    keys = set(parameters) - common
    assert set(section) == keys | traits.extra_keys | momentum
    for key in keys:
        assert section[key] == parameters[key].default


def test_types_are_those_that_yaml_has() -> None:
    def function(
        a: int,
        b: str | keras.Model = "b",
        c: Literal["x", "y"] | keras.Layer = "x",
        d: keras.Model | None = None,
        **kwargs: Any,
    ) -> None: ...

    fields = fields_of(function, lambda name: True)
    assert fields == {
        "a": (int, ...), "b": (str, "b"), "c": (Literal["x", "y"], "x"),
    }  # fmt: skip
    only = fields_of(function, lambda name: name == "b")
    assert list(only) == ["b"]


@pytest.mark.parametrize("default", ["", " = None"])
def test_arguments_without_a_type_are_refused(default) -> None:
    scope: dict[str, Any] = {}
    exec(f"def function(alpha{default}): ...", scope)
    with pytest.raises(ValueError, match="`alpha` of function must have a ty"):
        fields_of(scope["function"], lambda name: True)


OWN = """
from keras_dml import methods

def two(backbone, *, embedding_dim: int = 6, loss: str = "triplet", **kwargs):
    return methods.baseline(
        backbone, embedding_dim=embedding_dim, loss=loss, **kwargs
    )

def bare(backbone, dim=3, **kwargs): ...

def closed(backbone): ...

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Iterator[str]:
    """The name of a module that is no part of the package."""
    (tmp_path / "own_methods.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_methods"
    sys.modules.pop("own_methods", None)


def test_a_method_of_another_package(own) -> None:
    recipe = recipe_of({"name": f"{own}:two", "loss": "contrastive"})
    assert recipe.method.embedding_dim == 6
    assert recipe_of({"name": f"{own}:two", "loss": "contrastive"}) == recipe
    assert f"name: {own}:two" in dump(recipe)
    model = model_of(recipe)
    assert model.head.embedding_dim == 6
    assert isinstance(model.objective.loss, losses.ContrastiveLoss)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_methds:two", "`method.name`: The module 'own_methds'.*PYTHONPA"),
        ("own_methods:tow", "must define 'tow'"),
        ("own_methods:number", "must be a function of a backbone.*: 3"),
        ("own_methods:closed", "must be a function of a backbone"),
        ("own_methods:bare", "`dim` of bare must have a type"),
    ],
)
def test_what_is_no_method_of_another_package(own, name, message) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_of({"name": name})


def test_keys_of_a_method_of_another_package_are_known(own) -> None:
    with pytest.raises(RecipeError, match="`method.los` is not.*mean 'loss'"):
        recipe_of({"name": f"{own}:two", "los": "margin"})
    with pytest.raises(RecipeError, match="`method.name` must be one of"):
        recipe_of({"name": "two"})


def test_a_run_imports_the_module_of_its_method(
    own, tmp_path, monkeypatch
) -> None:
    recipe = recipe_of({"name": f"{own}:two"})
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    (tmp_path / "best.keras").touch()
    del sys.modules[own]
    monkeypatch.setattr(
        keras.models, "load_model", lambda path, compile: own in sys.modules
    )
    assert runs.load_model(tmp_path)


@pytest.mark.parametrize(
    ("given", "clusters"), [({}, 4), ({"num_learners": 3}, 3)]
)
def test_clusters_without_splitting_the_embedding(given, clusters) -> None:
    """Table 6 of divide and conquer: the sampler's number, not the model's."""
    method = {"name": "divide_and_conquer", "split_embedding": False, **given}
    recipe = recipe_of(method)
    sampler = sampler_of(recipe, blobs(32))
    assert sampler.num_learners == clusters
    model = model_of(recipe, sampler)
    assert isinstance(model.head, methods.EmbeddingHead)


def test_a_recipe_divides_by_a_column() -> None:
    images = blobs(32).with_groups(
        {"kind": np.arange(blobs(32).labels.size) % 5}
    )
    method = {
        "name": "divide_and_conquer",
        "partition": "column",
        "partition_column": "kind",
    }
    recipe = recipe_of(method)
    sampler = sampler_of(recipe, images)
    (recluster,) = callbacks_of(recipe, images, sampler)
    assert recluster.partition_column == "kind"
    with pytest.raises(ValueError, match="images with no groups"):
        callbacks_of(recipe, blobs(32), sampler)


def test_a_momentum_network_of_any_method() -> None:
    method = {
        "name": "baseline",
        "loss": {"name": "cross_batch_memory", "loss": "triplet", "size": 9},
        "ema_momentum": 0.5,
    }
    with pytest.raises(RecipeError, match="ema_momentum`.*num_views: 2"):
        recipe_of(method)
    model = model_of(recipe_of(method, num_views=2))
    assert model.momentum_encoder.ema_momentum == 0.5
