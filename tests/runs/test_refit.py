"""Training on all training classes, and a refit on them."""

import pytest

from keras_dml import recipes, runs
from keras_dml.runs.benchmark import _entry
from keras_dml.runs.folder import load_outcome
from keras_dml.runs.plan import Run
from tests.recipes.builds import data_of
from tests.runs.small_run import METHODS, write_recipe

SMALL = ("epochs=3", METHODS["baseline"])


def recipe_of(tmp_path, *settings):
    return recipes.load(write_recipe(tmp_path), (*SMALL, *settings))


@pytest.mark.slow
def test_train_on_all_holds_out_no_class(tmp_path, caplog) -> None:
    halves = data_of(recipe_of(tmp_path))
    recipe = recipe_of(tmp_path, "train_on=all", "stop_after=2")
    whole = data_of(recipe)
    without = data_of(recipe_of(tmp_path, "data.validation=0"))
    assert not len(without.validation)
    assert {*without.train.paths} == {*whole.train.paths}
    assert len(whole.validation) == 0
    held_out = set(halves.validation.classes.tolist())
    assert held_out and held_out < set(whole.train.classes.tolist())
    assert len(whole.train) == len(halves.train) + len(halves.validation)
    folder = tmp_path / "run"
    outcome = runs.train(recipe, folder, verbose=0)
    assert outcome.best_epoch is None
    assert outcome.measured == "last.keras of epoch 2"
    assert outcome.images["train"] == len(whole.train)
    assert "none was held out" in outcome.choice_line()
    assert not (folder / "best.keras").exists()
    again = runs.measure(recipe, runs.load_model(folder), whole)
    assert again == outcome.after
    assert "best.keras" not in caplog.text
    assert len((folder / "metrics.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_refit_trains_on_all_classes_for_the_best_epochs(tmp_path) -> None:
    recipe = recipe_of(tmp_path, "refit=true", "epochs=2")
    folder = tmp_path / "run"
    outcome = runs.train(recipe, folder, verbose=0)
    by_hand = runs.train(
        recipe_of(
            tmp_path,
            "train_on=all",
            "epochs=2",
            f"stop_after={outcome.best_epoch}",
        ),
        tmp_path / "by_hand",
        verbose=0,
    )
    assert outcome.refit == dict(by_hand.after)
    assert load_outcome(folder).refit == outcome.refit
    assert load_outcome(folder / "refit").images["validation"] == 0
    assert outcome.metrics_table()[0] == [
        "metric", "before", "after", "refit", "verdict"
    ]  # fmt: skip
    # A column of its own in a benchmark.
    entry = _entry(Run(recipe, folder), 0)
    assert entry.metrics["map@r, refit"] == outcome.refit["map@r"]
    assert entry.metrics["map@r"] == outcome.after["map@r"]
    # Values chosen on held-out classes are those of the run itself.
    assert dict(runs.remeasure(folder).results) == dict(outcome.after)
    # As if the refit had been killed before its measurement.
    result = folder / "refit" / "result.json"
    result.unlink()
    again = runs.train(recipe, folder, verbose=0, resume=True)
    assert again.refit == outcome.refit
    assert result.exists()


@pytest.mark.parametrize("setting", ["train_on=all", "data.validation=0"])
def test_refit_requires_held_out_classes(setting, tmp_path) -> None:
    recipe = recipe_of(tmp_path, "refit=true", setting)
    with pytest.raises(ValueError, match="`refit` of a recipe requires held-"):
        runs.train(recipe, tmp_path / "run", verbose=0)
    assert not (tmp_path / "run").exists()
