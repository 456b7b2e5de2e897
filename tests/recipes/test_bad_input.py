"""Values that crash YAML or Python raise recipe errors."""

import pytest

from keras_dml import losses
from keras_dml.recipes import RecipeError, load

LONG = {
    "hexadecimal": "0x" + "f" * 900_000,
    "decimal": "9" * 900_000,
    "octal": "0" + "7" * 5_000,
    "binary": "0b" + "1" * 20_000,
    "with underscores": "1_" * 5_000 + "1",
}
VALUES = {
    "an empty integer": "!!int ''",
    "no integer": "!!int abc",
    "no boolean": "!!bool abc",
    "no time": "!!timestamp abc",
    "no day": "2001-99-99",
}
PLACES = {
    "a loss": "method.loss='{}'",
    "a method": "method.name='{}'",
    "a metric": "evaluation.metrics=['{}']",
}


@pytest.mark.parametrize("key", ["seed", "epochs", "name"])
@pytest.mark.parametrize("kind", LONG)
def test_long_number_raises_with_its_length(kind, key, tmp_path) -> None:
    path, number = tmp_path / "own.yaml", LONG[kind]
    path.write_text(f"base: glyphs/baseline\n{key}: {number}\n")
    with pytest.raises(RecipeError, match=f"{len(number):,} char") as error:
        load(path)
    assert len(str(error.value)) < 500
    with pytest.raises(RecipeError, match="at most 400"):
        load("glyphs/baseline", (f"{key}={number}",))


@pytest.mark.parametrize("kind", VALUES)
def test_value_unlike_its_tag_raises(kind, tmp_path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"base: glyphs/baseline\nseed: {VALUES[kind]}\n")
    with pytest.raises(RecipeError, match="it is not YAML"):
        load(path)


@pytest.mark.parametrize("name", [".x:y", "..x:y", ":y", ":"])
@pytest.mark.parametrize("place", PLACES)
def test_relative_module_raises(place, name) -> None:
    setting = PLACES[place].format(name)
    with pytest.raises(RecipeError, match="cannot be imported"):
        load("glyphs/baseline", (setting,))
    with pytest.raises(ValueError, match="cannot be imported"):
        losses.get(name)
