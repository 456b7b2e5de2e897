"""Tests of the recipes' sections on data."""

from typing import Any

import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, building
from keras_dml.recipes.files import validate


def recipe_of(section: dict[str, Any]) -> Any:
    content = {
        "name": "run",
        "seed": 5,
        "data": section,
        "method": {"name": "baseline"},
    }
    return validate(content, "recipe.yaml")


@pytest.mark.parametrize(
    ("section", "arguments"),
    [
        ({"name": "cub200"}, {"cropped": False}),
        ({"name": "cars196", "cropped": True}, {"cropped": True}),
        ({"name": "sop", "validation": 0.3}, {"validation": 0.3}),
        ({"name": "inshop"}, {}),
        ({"name": "vehicleid", "test": "large"}, {"test": "large"}),
        (
            {"name": "table", "root": "images", "train_classes": 7},
            {"root": "images", "train_classes": 7},
        ),
        (
            {"name": "image_folder", "unreadable": "raise"},
            {"unreadable": "raise", "train_classes": 0.5},
        ),
    ],
)
def test_sections_call_their_loaders(
    section: dict[str, Any],
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = section["name"]
    loader = building._LOADERS[name]
    assert loader is getattr(data, name, None) or name == "image_folder"
    monkeypatch.setitem(building._LOADERS, name, lambda **given: given)
    given = building.splits(recipe_of({**section, "path": "somewhere"}))
    expected = {"path": "somewhere", "validation": 0.2, "seed": 5}
    assert given == {**expected, **arguments}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "sop", "path": "x", "cropped": True}, "cropped"),
        ({"name": "cub200"}, "path"),
        ({"name": "vehicleid", "path": "x", "test": "tiny"}, "small"),
        ({"name": "cub2000", "path": "x"}, "cub200"),
    ],
)
def test_unfit_sections(section: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_of(section)
