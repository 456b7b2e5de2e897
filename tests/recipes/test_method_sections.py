"""Sections of methods follow the signatures of their factories."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np
import pytest

from keras_dml import data, losses, methods, runs
from keras_dml.recipes import Recipe, RecipeError, dump, load
from keras_dml.recipes.files import validate
from keras_dml.recipes.sections import fields_of
from tests.conftest import blobs
from tests.recipes.builds import batches_of, model_of, sampler_of


def recipe_of(method: dict[str, Any], num_views: int = 1) -> Recipe:
    content = {
        "name": "run",
        "data": {"name": "glyphs"},
        "method": method,
        "augmentation": {"num_views": num_views},
    }
    return validate(content, "recipe.yaml")


def test_fields_have_types_that_yaml_can_write() -> None:
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
def test_arguments_without_a_type_raise(default) -> None:
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
def module(tmp_path, monkeypatch) -> Iterator[str]:
    """The name of a module outside the package."""
    (tmp_path / "own_methods.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_methods"
    sys.modules.pop("own_methods", None)


def test_method_of_another_package_is_built(module) -> None:
    recipe = recipe_of({"name": f"{module}:two", "loss": "contrastive"})
    assert recipe.method.embedding_dim == 6
    assert recipe_of({"name": f"{module}:two", "loss": "contrastive"}) == recipe
    assert f"name: {module}:two" in dump(recipe)
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
        ("own_methods:two", "`method.los` is not.*mean 'loss'"),
        ("two", "`method.name` must be one of"),
    ],
)
def test_unfit_method_of_another_package_raises(module, name, message) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_of({"name": name, "los": "margin"})


def test_trusted_run_imports_the_module_of_its_method(
    module, tmp_path, monkeypatch
) -> None:
    recipe = recipe_of({"name": f"{module}:two"})
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    (tmp_path / "best.keras").touch()
    del sys.modules[module]
    monkeypatch.setattr(
        keras.models, "load_model", lambda path, **_: module in sys.modules
    )
    assert runs.load_model(tmp_path, trust=True)


@pytest.mark.parametrize(
    ("arguments", "clusters"), [({}, 4), ({"num_learners": 3}, 3)]
)
def test_unsplit_embedding_may_have_clusters(arguments, clusters) -> None:
    """Table 6 of divide and conquer: only the sampler has learners."""
    method = {
        "name": "divide_and_conquer",
        "split_embedding": False,
        **arguments,
    }
    recipe = recipe_of(method)
    sampler = sampler_of(recipe, blobs(32))
    assert sampler.num_learners == clusters
    model = model_of(recipe, sampler)
    assert isinstance(model.head, methods.EmbeddingHead)


def test_any_method_may_have_a_momentum_network() -> None:
    method = {
        "name": "baseline",
        "loss": {"name": "cross_batch_memory", "loss": "triplet", "size": 9},
        "ema_momentum": 0.5,
    }
    with pytest.raises(RecipeError, match="ema_momentum`.*num_views: 2"):
        recipe_of(method)
    model = model_of(recipe_of(method, num_views=2))
    assert model.momentum_encoder.ema_momentum == 0.5


def test_pair_batches_have_the_size_of_the_recipe(images) -> None:
    settings = ("batches.classes_per_batch=6", "batches.images_per_class=2")
    pairs = ("method.pair_batches=true", "method.pairs=constructed")
    recipe = load("glyphs/abe", (*pairs, *settings))
    sampler = sampler_of(recipe, images)
    assert isinstance(sampler, data.PairSampler)
    labels = images.labels[sampler.plan(0)]
    assert labels.shape[1] == 12
    same = labels[:, :6] == labels[:, 6:]
    assert np.all(same == [True] * 3 + [False] * 3)
    plain = sampler_of(load("glyphs/abe", settings), images)
    assert isinstance(plain, data.ClassBalanced)


def test_diva_has_two_views_and_warns_of_few_triplets(caplog) -> None:
    images = data.ImageSet(
        np.zeros((12, 48, 48), "uint8"), np.repeat(np.arange(4), 3)
    )
    settings = "batches={classes_per_batch: 2, images_per_class: %d}"
    recipe = load("glyphs/diva", (settings % 3,))
    batches = sampler_of(recipe, images)
    assert not caplog.text
    dataset = batches_of(recipe, images, batches, (None, 48, 48, 1))
    assert set(dataset.element_spec[0]) == {"image", "image2"}
    sampler_of(load("glyphs/diva", (settings % 2,)), images)
    assert 'task "intra"' in caplog.text
