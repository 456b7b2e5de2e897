"""Recipe files, their bases and settings."""

import copy
from pathlib import Path

import pytest

from keras_dml.recipes import RecipeError, load
from keras_dml.recipes.inheritance import merge, parse_setting

BASE = """
name: base
data: {name: glyphs}
method: {name: baseline, loss: contrastive}
optimizer: {learning_rate: 0.01}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_later_bases_and_settings_win(tmp_path) -> None:
    write(tmp_path, "base.yaml", BASE)
    write(tmp_path, "more.yaml", "optimizer: {epsilon: 1.0e-8}\nseed: 3\n")
    write(tmp_path, "most.yaml", "base: more.yaml\nseed: 4\nepochs: 2\n")
    path = write(
        tmp_path, "deep/child.yaml",
        "base: [../base.yaml, ../most.yaml]\nname: child\nepochs: 5\n",
    )  # fmt: skip
    recipe = load(path, ("epochs=3", "method.loss={name: margin, beta: 1.1}"))
    assert recipe.optimizer.learning_rate == 0.01
    assert recipe.optimizer.epsilon == 1e-8
    assert (recipe.seed, recipe.epochs, recipe.name) == (4, 3, "child")
    assert recipe.method.loss == {"name": "margin", "beta": 1.1}


DCML = {"method": {"name": "dcml", "num_compositors": 8}}
LOSS = {"method": {"name": "baseline", "loss": "margin"}}


@pytest.mark.parametrize(
    ("base", "change", "expected"),
    [
        ({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}},
         {"a": {"b": 1, "c": [3]}}),
        # A section of another name is replaced.
        (DCML, {"method": {"name": "baseline", "pooling": "max"}},
         {"method": {"name": "baseline", "pooling": "max"}}),
        (DCML, {"method": {"name": "dcml", "signs": False}},
         {"method": {"name": "dcml", "num_compositors": 8, "signs": False}}),
        # Another backbone keeps the other keys.
        ({"backbone": {"name": "a.keras", "freeze_batch_norm": True}},
         {"backbone": {"name": "b.keras"}},
         {"backbone": {"name": "b.keras", "freeze_batch_norm": True}}),
        # Arguments go to the loss that is a name, unless they are losses of
        # their own.
        *((LOSS, {"method": {"loss": change}},
           {"method": {"name": "baseline", "loss": loss}})
          for change, loss in (
              ({"beta": 1.1}, {"name": "margin", "beta": 1.1}),
              ({"name": "triplet"}, {"name": "triplet"}),
              ({"contrastive": 1.0}, {"contrastive": 1.0}),
              ({"mine": {"name": "triplet"}}, {"mine": {"name": "triplet"}}),
              ({"class_name": "A"}, {"class_name": "A"}),
        )),
    ],
)  # fmt: skip
def test_merge_applies_a_change_and_modifies_neither(
    base, change, expected
) -> None:
    before = copy.deepcopy((base, change))
    assert merge(base, change) == expected
    assert (base, change) == before


def test_own_patterns_precede_inherited_ones() -> None:
    base = {"rate_multipliers": {"head": 10.0, "/loss/": 2.0}}
    change = {"rate_multipliers": {"queries": 0.0, "/loss/": 3.0}}
    merged = merge(base, change)["rate_multipliers"]
    assert list(merged.items()) == [
        ("queries", 0.0), ("/loss/", 3.0), ("head", 10.0),
    ]  # fmt: skip
    nested = [{"optimizer": {"decay_multipliers": {x: 1.0}}} for x in "ab"]
    optimizer = merge(*nested)["optimizer"]
    assert list(optimizer["decay_multipliers"]) == ["b", "a"]
    # Elsewhere the order is that of the base.
    assert list(merge({"a": {"x": 1}}, {"a": {"y": 2}})["a"]) == ["x", "y"]


@pytest.mark.parametrize("setting", ["rate_multipliers={}", "loss_weights={}"])
def test_empty_mapping_clears_the_inherited_one(setting, tmp_path) -> None:
    path = write(
        tmp_path, "base.yaml",
        BASE + "rate_multipliers: {head: 10.0}\nloss_weights: {metric: 2.0}\n",
    )  # fmt: skip
    key = setting.partition("=")[0]
    assert getattr(load(path), key) != {}
    assert getattr(load(path, (setting,)), key) == {}


def test_argument_of_a_loss_can_be_set(tmp_path) -> None:
    path = write(tmp_path, "base.yaml", BASE)
    recipe = load(path, ("method.loss.negative_margin=0.9",))
    expected = {"name": "contrastive", "negative_margin": 0.9}
    assert recipe.method.loss == expected
    without = BASE.replace(", loss: contrastive", "")
    path = write(tmp_path, "without.yaml", without)
    with pytest.raises(RecipeError, match="needs its loss.*{name: NAME, q: 2}"):
        load(path, ("method.loss.q=2",))


@pytest.mark.parametrize(
    ("loss", "same"),
    [
        ("{name: margin}", "margin"),
        ("{name: matryoshka, dims: [8], loss: {name: margin}}",
         "{name: matryoshka, dims: [8], loss: margin}"),
    ],
)  # fmt: skip
def test_loss_without_arguments_equals_its_name(loss, same, tmp_path) -> None:
    path = write(tmp_path, "base.yaml", BASE)
    settings = [(f"method.loss={x}",) for x in (loss, same)]
    assert load(path, settings[0]) == load(path, settings[1])


def test_parse_setting_reads_yaml_values() -> None:
    assert parse_setting("a.b=1e-3") == {"a": {"b": "1e-3"}}
    assert parse_setting("a.b=1.0e-3") == {"a": {"b": 0.001}}
    assert parse_setting("x=[1, 2]") == {"x": [1, 2]}
    assert parse_setting("x=a=b") == {"x": "a=b"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("epochs: 100\nname: twice\nepochs: 1\n", "epochs"),
        ("optimizer: {learning_rate: 1.0, learning_rate: 2.0}\n",
         "learning_rate"),
        ("method:\n  loss: {name: margin, beta: 1.2, name: triplet}\n", "name"),
    ],
)  # fmt: skip
def test_duplicate_key_raises(tmp_path, text, key) -> None:
    path = write(tmp_path, "twice.yaml", text)
    with pytest.raises(RecipeError, match=f"the key '{key}' occurs twice"):
        load(path)
    with pytest.raises(RecipeError, match="the key 'a' occurs twice"):
        load("quickstart", ("rate_multipliers={a: 1, a: 2}",))
