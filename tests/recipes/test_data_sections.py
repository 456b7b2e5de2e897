"""Tests of the recipes' sections on data."""

from typing import Any

import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, building
from keras_dml.recipes.files import validate
from tests.recipes.stand_ins import stand_in


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
            {
                "root": "images",
                "train_classes": 7,
                "label": "label",
                "separator": None,
                "levels": (),
                "groups": (),
                "held_out_by": None,
            },
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
    loader = data.DATASETS[name].value
    assert loader is getattr(data, name, None) or name == "image_folder"
    stand_in(monkeypatch, name, lambda **given: given)
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


def test_what_recipes_leave_to_the_loader_is_no_key() -> None:
    for name, keys in (
        ("glyphs", set()),
        ("cub200", {"path", "cropped", "validation"}),
        (
            "table",
            {"path", "root", "train_classes", "validation"}
            | {"separator", "label", "levels", "groups", "held_out_by"},
        ),
        (
            "image_folder",
            {"path", "train_classes", "validation", "unreadable"},
        ),
    ):
        given = {"path": "x"} if keys else {}
        section = recipe_of({"name": name, **given}).data
        assert set(section.model_dump()) == {"name", *keys}


def test_a_module_of_data_that_declares_a_loader_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data.DATASETS, "_entries", dict(data.DATASETS))

    @data.dataset("twos", "pairs of images")
    def twos(count: int, seed: int = 0) -> data.DataSplits:
        raise ValueError(f"{count=} {seed=}")

    assert data.twos is twos
    recipe = recipe_of({"name": "twos", "count": 7})
    with pytest.raises(ValueError, match="count=7 seed=5"):
        building.splits(recipe)
    with pytest.raises(RecipeError, match="`data.count` is missing"):
        recipe_of({"name": "twos"})
