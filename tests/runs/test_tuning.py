"""Studies of a recipe that trains in a second: real trials of Optuna."""

import sys
from pathlib import Path

import pytest

from keras_dml import recipes, runs
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.recipes import RecipeError
from keras_dml.runs import tuning
from keras_dml.runs.tuning import (
    ReportEpochs,
    change_recipe,
    check_space,
    suggest,
    trial_rows,
)
from tests.runs.small_run import METHODS, write_recipe

optuna = pytest.importorskip("optuna")

RATE = "optimizer.learning_rate"
SPACE = {
    RATE: {"low": 1e-4, "high": 1e-1, "log": True},
    "method.embedding_dim": [4, 8],
}
SETTINGS = (
    METHODS["baseline"], "epochs=2", "data.validation=0.5", "refit=true"
)  # fmt: skip


def small(folder: Path, *settings: str) -> recipes.Recipe:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "small.yaml"
    path = path if path.exists() else write_recipe(folder)
    return recipes.load(path, (*SETTINGS, *settings))


@pytest.fixture
def measured(monkeypatch):
    """Values of the metric, one for each time that it is measured."""
    values = []

    def measure(self) -> dict[str, float]:
        return dict.fromkeys(self.logged_names, values.pop(0))

    monkeypatch.setattr(RetrievalEvaluation, "measure", measure)
    return values


RULES = [
    ({"low": 1, "hihg": 2}, "number `low` below a number `high`"),
    ({"low": 2, "high": 1}, "number `low` below"),
    ({"low": float("nan"), "high": 1.0}, "number `low` below"),
    ({"low": 0.0, "high": 1.0, "log": True}, "low > 0"),
    ({"low": 1, "high": 6, "step": 2}, "not divisible"),
    ({"low": 1, "high": 6, "step": -1}, "step > 0"),
    ({"low": 1, "high": 2, "step": 0.5}, "integers must be whole"),
    ([3], "two choices"),
    ([3, 3], "each once"),
    (5, "number `low` below"),
]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        *(({"epochs": values}, f"(?s)`epochs` of a space.*Received.*{rule}")
          for values, rule in RULES),
        ({"optimizer.learning_rte": [1e-3, 1e-2]}, "'learning_rate'"),
        ({"epocs": [1, 2]}, "Did you mean 'epochs'"),
        ({"epochs": {"low": -3, "high": 2}}, "`epochs`"),
        ({"method.name": ["baseline", "baselin"]}, "'baseline'"),
        ({}, "dotted settings"),
        ([1, 2], "dotted settings"),
        (None, "dotted settings"),
        (
            {"method": [{"name": "baseline"}, {"name": "dcml"}],
             "method.loss": ["triplet", "contrastive"]},
            "inside another setting",
        ),
    ],
)  # fmt: skip
def test_wrong_space_raises(space, message) -> None:
    with pytest.raises((RecipeError, ValueError), match=message):
        check_space(space, recipes.load("glyphs/baseline"))


def test_suggestions_fit_the_space_and_the_recipe() -> None:
    recipe = recipes.load("glyphs/baseline")
    space = {
        RATE: {"low": 1e-4, "high": 1e-2, "log": True},
        "method.embedding_dim": {"low": 4, "high": 16, "step": 4},
        "method.loss": [{"name": "triplet", "margin": 0.2},
                        {"name": "contrastive"}],
    }  # fmt: skip
    check_space(space, recipe)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    seen = set()
    for _ in range(30):
        settings = suggest(study.ask(), space)
        changed = change_recipe(recipe, settings, "a trial")
        assert 1e-4 <= changed.optimizer.learning_rate <= 1e-2
        loss = settings["method.loss"]["name"]
        seen.add((changed.method.embedding_dim, loss))
    assert {dim for dim, _ in seen} == {4, 8, 12, 16}
    assert {loss for _, loss in seen} == {"triplet", "contrastive"}


@pytest.mark.slow
def test_best_recipe_trains_to_its_value(tmp_path, monkeypatch) -> None:
    recipe, folder = small(tmp_path), tmp_path / "study"
    with monkeypatch.context() as patched:
        # Training would measure test classes with this function.
        patched.setattr("keras_dml.runs.training.measure", None)
        study = runs.tune(recipe, SPACE, folder, trials=3)
    best = study.best_trial
    assert len(study.trials) == 3
    assert best.value == max(best.intermediate_values.values())
    tuned = recipes.load(folder / "best.yaml", ("refit=false",))
    assert tuned.name == "small-tuned"
    assert tuned.optimizer.learning_rate == best.params[RATE]
    assert tuned.method.embedding_dim == best.params["method.embedding_dim"]
    outcome = runs.train(tuned, tmp_path / "run", verbose=0)
    assert outcome.monitored == pytest.approx(best.value, abs=1e-6)


@pytest.mark.slow
def test_interrupted_trial_is_trained_again(tmp_path, monkeypatch) -> None:
    recipe, folder = small(tmp_path, "epochs=1"), tmp_path / "study"
    monkeypatch.setattr(tuning, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(tuning, "GRACE_SECONDS", 2)

    def suggest_then_exit(*arguments) -> None:
        suggest(*arguments)
        raise SystemExit  # As a process that is killed, it tells Optuna none.

    with monkeypatch.context() as patched:
        patched.setattr(tuning, "suggest", suggest_then_exit)
        with pytest.raises(SystemExit):
            runs.tune(recipe, SPACE, folder, trials=2)
    study = runs.tune(recipe, SPACE, folder, trials=2)
    interrupted, *trials = study.trials
    assert interrupted.state.name == "FAIL"
    assert [x.state.name for x in trials] == ["COMPLETE"] * 2
    assert interrupted.params in [x.params for x in trials]
    assert [x["state"] for x in trial_rows(study)] == ["complete"] * 2


@pytest.mark.slow
def test_failed_trial_is_recorded_and_the_study_continues(tmp_path) -> None:
    recipe = small(tmp_path, "epochs=1")
    key = "batches.classes_per_batch"
    study = runs.tune(
        recipe, {key: [2, 50]}, tmp_path / "study", trials=2, seed=1
    )
    complete, failed = trial_rows(study)
    assert (complete[key], complete["state"]) == (2, "complete")
    assert (failed[key], failed["state"]) == (50, "fail")
    assert "50" in failed["error"]


@pytest.mark.slow
def test_trial_below_the_median_is_pruned_after_the_warm_up(
    tmp_path, measured
) -> None:
    recipe, folder = small(tmp_path), tmp_path / "study"
    study = runs.tune(recipe, SPACE, folder, timeout=1e-9)
    distributions = optuna.distributions
    good = optuna.trial.create_trial(
        value=0.9,
        intermediate_values={1: 0.9, 2: 0.9},
        params={RATE: 1e-3, "method.embedding_dim": 4},
        distributions={
            RATE: distributions.FloatDistribution(1e-4, 1e-1, log=True),
            "method.embedding_dim": distributions.CategoricalDistribution(
                [4, 8]
            ),
        },
    )
    study.add_trials([good] * 5)
    measured += [0.1, 0.1, 0.1]
    runs.tune(recipe, SPACE, folder, trials=6)
    runs.tune(recipe, SPACE, folder, trials=7, warmup_epochs=0)
    *_, warm, cold = study.trials
    assert [warm.state.name, cold.state.name] == ["PRUNED"] * 2
    assert warm.intermediate_values == {1: 0.1, 2: 0.1}
    assert cold.intermediate_values == {1: 0.1}


@pytest.mark.slow
def test_unmeasured_epochs_are_not_reported(tmp_path, measured) -> None:
    measured += [0.3, 0.9, 0.6]
    recipe = small(tmp_path, "epochs=4", "evaluation.every=2")
    study = runs.tune(recipe, SPACE, tmp_path / "study", trials=1)
    assert study.best_trial.intermediate_values == {1: 0.3, 2: 0.9, 4: 0.6}
    assert study.best_value == 0.9


def test_infinite_loss_fails_the_trial() -> None:
    callback = ReportEpochs(None, "val_map@r")
    with pytest.raises(ValueError, match="`loss` is inf after epoch 1"):
        callback.on_epoch_end(0, {"loss": float("inf"), "val_map@r": 0.5})


@pytest.mark.slow
def test_study_of_failures_raises(tmp_path, measured) -> None:
    measured.append(float("nan"))
    with pytest.raises(ValueError, match="All 1 trials.*is nan after epoch 1"):
        runs.tune(small(tmp_path), SPACE, tmp_path / "study", trials=1)


def test_study_of_another_space_or_recipe_raises(tmp_path) -> None:
    recipe, folder = small(tmp_path), tmp_path / "study"
    arguments = {"trials": 1, "timeout": 1e-9}
    assert runs.tune(recipe, SPACE, folder, **arguments).trials == []
    assert runs.tune(recipe, SPACE, folder, **arguments).trials == []
    with pytest.raises(ValueError, match=r"space.epochs.0: nothing → 1"):
        runs.tune(recipe, {"epochs": [1, 2]}, folder, **arguments)
    with pytest.raises(ValueError, match="recipe.epochs: 2 → 3"):
        runs.tune(small(tmp_path, "epochs=3"), SPACE, folder, **arguments)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FileExistsError, match="is not a study"):
        runs.tune(recipe, SPACE, tmp_path / "other", **arguments)


@pytest.mark.parametrize(("name", "value"), [("trials", 0), ("timeout", -1.0)])
def test_budgets_are_checked(name, value, tmp_path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` of tune"):
        runs.tune(None, SPACE, tmp_path / "study", **{name: value})


def test_missing_optuna_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"keras-dml\[tune\]"):
        runs.tune(None, SPACE, tmp_path / "study")
