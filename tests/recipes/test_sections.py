"""Sections are made from signatures, so that a default stands once."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

import pytest

from keras_dml import backbones, callbacks, data
from keras_dml.methods.declaration import METHODS, find
from keras_dml.model import MetricModel
from keras_dml.recipes import RecipeError, load
from keras_dml.recipes.files import recipe_type
from keras_dml.recipes.schema import Recipe, looked_up
from keras_dml.recipes.sections import Section
from tests.recipes.test_resize_mode import RECIPE

SIGNATURES = {
    "backbone": backbones.get,
    "batches": data.ClassBalanced,
    "view": data.View,
    "augmentation": data.pipeline,
    "evaluation": callbacks.RetrievalEvaluation,
}
# What a recipe says for itself.
OWN = {
    "backbone": {"name", "feature_views", "feature_cache", "freeze_epochs"},
    "batches": {"classes_per_batch", "fewer_classes", "hard_classes"},
    "evaluation": {"metrics", "monitor"},
}


def sections() -> dict[str, type[Section]]:
    """All sections that recipes can have, by where they stand."""
    found: dict[str, type[Section]] = {}
    for key, field in recipe_type({}).model_fields.items():
        for option in (field.annotation, *get_args(field.annotation)):
            if isinstance(option, type) and issubclass(option, Section):
                tag = get_args(option.model_fields["name"].annotation) if (
                    key in ("data", "method")) else ()  # fmt: skip
                found["/".join((key, *tag))] = option
    return found


def signatures_of(place: str) -> list[Callable[..., Any]]:
    key, _, name = place.partition("/")
    if key == "data":
        return [data.DATASETS[name].value]
    if key == "method":
        factory, traits = find(name)
        return [factory, MetricModel, *map(looked_up, traits.uses)]
    return [SIGNATURES[key]]


def test_all_sections_are_walked() -> None:
    own = {key for key in Recipe.model_fields if key in SIGNATURES}
    named = {f"data/{name}" for name in data.DATASETS}
    named |= {f"method/{name}" for name in METHODS}
    # Keras's optimizers have other defaults, each its own.
    assert set(sections()) == own | named | {"optimizer"}


@pytest.mark.parametrize("place", sorted(set(sections()) - {"optimizer"}))
def test_defaults_are_those_of_the_signatures(place: str) -> None:
    key, _, name = place.partition("/")
    options = find(name)[1].options if key == "method" else {}
    own = OWN.get(key, {"name", *options} if name else set())
    fields = sections()[place].model_fields
    assert own <= set(fields)
    for field in set(fields) - own:
        found = [
            parameters[field].default
            for function in signatures_of(place)
            if field in (parameters := inspect.signature(function).parameters)
        ]
        default = inspect.Parameter.empty
        if not fields[field].is_required():
            default = fields[field].default
        assert default in found, field
    for option, default in options.items():
        assert fields[option].default == default


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("batches.images_per_class=0", "greater than or equal to 1"),
        ("batches.classes_per_batch=null", "valid integer"),
        ("augmentation.resize=0", "greater than or equal to 1"),
        ("augmentation.crop=centre", "'random', 'random_resized' or 'center'"),
        ("augmentation.pad=-1", "greater than or equal to 0"),
        ("augmentation.num_views=3", "1 or 2"),
        ("augmentation.cache=ram", "'none', 'auto', 'memory' or 'disk'"),
        ("backbone.input_shape=[8, x]", "input_shape"),
        ("backbone.weight=x", "Did you mean 'weights'"),
        ("view.resize_mode=pad", "longest"),
        ("augmentation.resize_mode=pad", "longest"),
        ("view.size=8", "`view.size` is not a key of view"),
        ("evaluation.every=0", "greater than or equal to 1"),
    ],
)
def test_ranges_and_choices_are_those_of_the_types(setting, message) -> None:
    with pytest.raises(RecipeError, match=message):
        load(RECIPE, (setting,))
