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


def test_inherits_and_merges(tmp_path) -> None:
    write(tmp_path, "base.yaml", BASE)
    path = write(
        tmp_path, "deep/child.yaml",
        "base: ../base.yaml\nname: child\noptimizer: {epsilon: 1.0e-8}\n",
    )  # fmt: skip
    recipe = load(path)
    assert recipe.name == "child"
    assert recipe.optimizer.learning_rate == 0.01
    assert recipe.optimizer.epsilon == 1e-8
    assert recipe.method.loss == "contrastive"


def test_later_bases_go_on_top(tmp_path) -> None:
    write(tmp_path, "base.yaml", BASE)
    write(tmp_path, "more.yaml", "optimizer: {epsilon: 1.0e-8}\nseed: 3\n")
    write(tmp_path, "most.yaml", "base: more.yaml\nseed: 4\nepochs: 2\n")
    path = write(
        tmp_path, "child.yaml",
        "base: [base.yaml, most.yaml]\nname: child\nepochs: 5\n",
    )  # fmt: skip
    recipe = load(path)
    assert recipe.optimizer.learning_rate == 0.01
    assert recipe.optimizer.epsilon == 1e-8
    assert (recipe.seed, recipe.epochs, recipe.name) == (4, 5, "child")


def test_settings_go_on_top(tmp_path) -> None:
    path = write(tmp_path, "base.yaml", BASE)
    recipe = load(path, ("epochs=3", "method.loss={name: margin, beta: 1.1}"))
    assert recipe.epochs == 3
    assert recipe.method.loss == {"name": "margin", "beta": 1.1}


def test_merge_alters_neither() -> None:
    base, change = {"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}
    assert merge(base, change) == {"a": {"b": 1, "c": [3]}}
    assert base == {"a": {"b": 1, "c": [1, 2]}}
    assert change == {"a": {"c": [3]}}


def test_own_patterns_count_before_inherited_ones() -> None:
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


def test_a_section_of_another_name_is_replaced() -> None:
    base = {"method": {"name": "dcml", "num_compositors": 8}}
    change = {"method": {"name": "baseline", "pooling": "max"}}
    assert merge(base, change) == change
    same = {"method": {"name": "dcml", "signs": False}}
    assert merge(base, same)["method"] == {
        "name": "dcml", "num_compositors": 8, "signs": False,
    }  # fmt: skip


def test_another_backbone_keeps_the_other_keys() -> None:
    base = {"backbone": {"name": "a.keras", "freeze_batch_norm": True}}
    assert merge(base, {"backbone": {"name": "b.keras"}})["backbone"] == {
        "name": "b.keras", "freeze_batch_norm": True,
    }  # fmt: skip


@pytest.mark.parametrize("setting", ["rate_multipliers={}", "loss_weights={}"])
def test_an_empty_mapping_clears(setting, tmp_path) -> None:
    path = write(
        tmp_path, "base.yaml",
        BASE + "rate_multipliers: {head: 10.0}\nloss_weights: {metric: 2.0}\n",
    )  # fmt: skip
    key = setting.partition("=")[0]
    assert getattr(load(path), key) != {}
    assert getattr(load(path, (setting,)), key) == {}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"beta": 1.1}, {"name": "margin", "beta": 1.1}),
        ({"name": "triplet"}, {"name": "triplet"}),
        # Losses of their own, which are not arguments of the one before.
        ({"contrastive": 1.0}, {"contrastive": 1.0}),
        ({"mine": {"name": "triplet"}}, {"mine": {"name": "triplet"}}),
        ({"class_name": "A"}, {"class_name": "A"}),
    ],
)
def test_arguments_go_to_the_loss_that_is_a_name(change, expected) -> None:
    base = {"method": {"name": "baseline", "loss": "margin"}}
    merged = merge(base, {"method": {"loss": change}})
    assert merged["method"]["loss"] == expected


def test_an_argument_of_a_loss_can_be_set(tmp_path) -> None:
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
def test_a_loss_that_is_only_a_name_needs_no_section(
    loss, same, tmp_path
) -> None:
    path = write(tmp_path, "base.yaml", BASE)
    settings = [(f"method.loss={x}",) for x in (loss, same)]
    assert load(path, settings[0]) == load(path, settings[1])


def test_parse_setting() -> None:
    assert parse_setting("a.b=1e-3") == {"a": {"b": "1e-3"}}
    assert parse_setting("a.b=1.0e-3") == {"a": {"b": 0.001}}
    assert parse_setting("x=[1, 2]") == {"x": [1, 2]}
    assert parse_setting("x=a=b") == {"x": "a=b"}
