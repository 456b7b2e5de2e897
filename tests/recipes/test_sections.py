"""Sections are built from signatures, so each default is stated once."""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel

from keras_dml import backbones, callbacks, data
from keras_dml.methods.declaration import METHODS, find
from keras_dml.model import MetricModel
from keras_dml.recipes.files import recipe_type
from keras_dml.recipes.model_sections import resolve
from keras_dml.recipes.schema import Recipe
from keras_dml.recipes.sections import Section

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
    """All sections of recipes, by their place."""
    section_types: dict[str, type[Section]] = {}
    for key, field in recipe_type({}).model_fields.items():
        for option in (field.annotation, *get_args(field.annotation)):
            if isinstance(option, type) and issubclass(option, Section):
                tag = get_args(option.model_fields["name"].annotation) if (
                    key in ("data", "method")) else ()  # fmt: skip
                section_types["/".join((key, *tag))] = option
    return section_types


def signatures_of(place: str) -> list[Callable[..., Any]]:
    key, _, name = place.partition("/")
    if key == "data":
        return [data.DATASETS[name].value]
    if key == "method":
        factory, traits = find(name)
        return [factory, MetricModel, *map(resolve, traits.uses)]
    return [SIGNATURES[key]]


def test_sections_cover_recipes_data_sets_and_methods() -> None:
    recipe_keys = {key for key in Recipe.model_fields if key in SIGNATURES}
    names = {f"data/{name}" for name in data.DATASETS}
    names |= {f"method/{name}" for name in METHODS}
    # Keras's optimizers have other defaults, each its own.
    assert set(sections()) == recipe_keys | names | {"optimizer"}


def left_out(place: str) -> set[str]:
    """Arguments of a data set or method without a recipe key."""
    key, _, name = place.partition("/")
    if key == "data":
        return {"seed", *data.DATASETS[name].details["leave_out"]}
    return {"backbone", "loss_weights", "kwargs"}


@pytest.mark.parametrize("place", [x for x in sections() if "/" in x])
def test_sections_have_all_arguments(place: str) -> None:
    arguments = set(inspect.signature(signatures_of(place)[0]).parameters)
    assert arguments - left_out(place) <= set(sections()[place].model_fields)


@pytest.mark.parametrize("place", sorted(set(sections()) - {"optimizer"}))
def test_defaults_match_the_signatures(place: str) -> None:
    key, _, name = place.partition("/")
    options = find(name)[1].options if key == "method" else {}
    expected_keys = OWN.get(key, {"name", *options} if name else set())
    fields = sections()[place].model_fields
    assert expected_keys <= set(fields)
    for field in set(fields) - expected_keys:
        defaults = [
            parameters[field].default
            for function in signatures_of(place)
            if field in (parameters := inspect.signature(function).parameters)
        ]
        default = inspect.Parameter.empty
        if not fields[field].is_required():
            default = fields[field].default
        assert default in defaults, field
    for option, default in options.items():
        assert fields[option].default == default


def numbers(kind: Any, bounds: tuple[Any, ...], key: str) -> Iterator[Any]:
    """Each numeric type in a schema: its section's key, type and bounds."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from numbers(inside[0], (*bounds, *inside[1:]), key)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            below = f"{kind.__name__}.{name}"
            yield from numbers(field.annotation, tuple(field.metadata), below)
    elif kind in (int, float):
        yield key, kind, bounds
    elif origin is not Literal:
        kept = () if origin in (tuple, dict, list) else bounds
        for x in inside:
            yield from numbers(x, kept, key)


def test_integers_have_bounds_and_floats_are_finite() -> None:
    schema = recipe_type({})
    fields = list(numbers(schema, (), "Recipe"))
    assert len(fields) > 60
    assert schema.model_config["allow_inf_nan"] is False
    for key, kind, bounds in fields:
        ends = {type(x) for x in bounds}
        if kind is int:
            assert ends & {annotated_types.Ge, annotated_types.Gt}, key
            assert ends & {annotated_types.Le, annotated_types.Lt}, key
