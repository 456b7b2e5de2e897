"""Which spaces are refused, and what they suggest."""

import pytest

from keras_dml.recipes import RecipeError, validate
from keras_dml.runs.tuning import read_space
from keras_dml.runs.tuning.space import changed, checked, nested

optuna = pytest.importorskip("optuna")

RECIPE = {
    "name": "small",
    "data": {"name": "glyphs"},
    "backbone": {"name": "small_convnet", "input_shape": [16, 16, 1]},
    "method": {"name": "baseline", "loss": "contrastive", "embedding_dim": 8},
    "batches": {"classes_per_batch": 2, "images_per_class": 3},
    "epochs": 2,
}


@pytest.fixture(scope="module")
def recipe():
    return validate(RECIPE, "small")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"optimizer.learning_rte": [1e-3, 1e-2]}, "'learning_rate'"),
        ({"epocs": [1, 2]}, "Did you mean 'epochs'"),
        ({"epochs": {"low": -3, "high": 2}}, "`epochs`"),
        ({"method.name": ["baseline", "baselin"]}, "'baseline'"),
    ],
)
def test_what_is_no_setting_names_the_nearest(recipe, space, message) -> None:
    with pytest.raises(RecipeError, match=message):
        checked(space, recipe)


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ({"low": 1, "hihg": 2}, "Did you mean 'high'"),
        ({"low": 1}, "numbers as low, high"),
        ({"low": 2, "high": 1}, "`low` below its `high`"),
        ({"low": 0.0, "high": 1.0, "log": True}, "above 0"),
        ({"low": 1, "high": 6, "step": 2}, "whole steps"),
        ({"low": 1, "high": 6, "step": -1}, "whole steps"),
        ({"low": 1, "high": 2, "step": 0.5}, "whole step between integers"),
        ({"low": float("nan"), "high": 1.0}, "numbers"),
        ([3], "two choices"),
        ([3, 3], "each once"),
        (5, "a range or a list"),
    ],
)
def test_what_is_no_range_says_the_rule(recipe, setting, rule) -> None:
    with pytest.raises(ValueError, match=rule) as raised:
        checked({"epochs": setting}, recipe)
    assert "`epochs` of a space" in str(raised.value)
    assert "Received" in str(raised.value)


@pytest.mark.parametrize("content", ["", "[1, 2]", "5", "{a: ["])
def test_what_is_no_space_is_refused(recipe, content, tmp_path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match="space.yaml"):
        read_space(path, recipe)


def test_a_file_that_is_not_there_is_named(recipe, tmp_path) -> None:
    path = tmp_path / "space.yaml"
    with pytest.raises(
        FileNotFoundError, match="space.yaml cannot be read: No"
    ):
        read_space(path, recipe)


def test_suggestions_are_in_the_space_and_fit_the_recipe(recipe) -> None:
    losses = [{"name": "triplet", "margin": 0.2}, {"name": "contrastive"}]
    space = checked(
        {
            "optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
            "method.embedding_dim": {"low": 4, "high": 16, "step": 4},
            "method.loss": losses,
        },
        recipe,
    )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    seen = set()
    for _ in range(30):
        trial = study.ask()
        found = space.suggest(trial)
        assert space.values(trial.params) == found
        own = changed(recipe, found, "a trial")
        assert 1e-4 <= own.optimizer.learning_rate <= 1e-2
        seen.add((own.method.embedding_dim, found["method.loss"]["name"]))
    assert {dim for dim, _ in seen} == {4, 8, 12, 16}
    assert {loss for _, loss in seen} == {"triplet", "contrastive"}


def test_settings_inside_each_other_are_refused() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {
        "a": {"b": 1, "c": 2},
        "d": 3,
    }
    with pytest.raises(RecipeError, match="nested in each other"):
        nested({"a": 1, "a.b": 2})
