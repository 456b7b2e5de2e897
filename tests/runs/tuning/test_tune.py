"""Studies of a recipe that trains in a second: real trials of Optuna."""

import csv
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from keras_dml import recipes, runs
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.runs.tuning import importances
from keras_dml.runs.tuning.search import _next, _pruner
from keras_dml.runs.tuning.space import checked
from keras_dml.runs.tuning.study import open_study
from tests.runs.small_run import METHODS, write_recipe

pytest.importorskip("optuna")

SPACE = {
    "optimizer.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
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


def found_by(tuned: runs.Tuned) -> list[tuple]:
    return [
        (x.state, x.value, x.settings, x.curve)
        for x in sorted(tuned.trials, key=lambda x: x.number)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    recipe = small(folder)
    measured = []

    def watched(self) -> dict[str, float]:
        measured.append(self.images)
        return measure(self)

    measure = RetrievalEvaluation._measure
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RetrievalEvaluation, "_measure", watched)
        # Who measures test classes calls this.
        patched.setattr("keras_dml.runs.training.measure", None)
        tuned = runs.tune(recipe, SPACE, folder / "study", trials=3)
    return recipe, tuned, measured


@pytest.mark.slow
def test_the_best_trial_is_a_recipe_that_gives_its_value(whole, tmp_path):
    recipe, tuned, measured = whole
    best = tuned.best
    values = [x.value for x in tuned.trials if x.state == "complete"]
    assert best.value == max(values)
    assert len(tuned.trials) == 3
    assert best.value == max(best.curve.values())
    found = recipes.load(tuned.folder / "best.yaml", ("refit=false",))
    assert found.name == "small-tuned"
    rate = best.settings["optimizer.learning_rate"]
    assert found.optimizer.learning_rate == rate
    assert found.method.embedding_dim == best.settings["method.embedding_dim"]
    again = runs.train(found, tmp_path / "run", verbose=0)
    assert again.monitored == pytest.approx(best.value, abs=1e-6)
    validation = recipes.building.splits(recipe).validation
    assert {len(x) for x in measured} == {len(validation)}


@pytest.mark.slow
def test_the_table_has_every_trial(whole) -> None:
    _, tuned, _ = whole
    with (tuned.folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {int(x["trial"]) for x in rows} == {0, 1, 2}
    assert float(rows[0]["map@r"]) == pytest.approx(tuned.best.value, abs=1e-4)
    assert set(SPACE) < set(rows[0])
    shares = importances(tuned.folder)
    assert not shares or sum(shares.values()) == pytest.approx(1)


@pytest.mark.slow
def test_a_killed_study_goes_on_as_if_it_had_not_been(whole, tmp_path) -> None:
    recipe, tuned, _ = whole
    (tmp_path / "space.json").write_text(json.dumps(SPACE))
    (tmp_path / "recipe.yaml").write_text(recipes.dump(recipe))
    folder = tmp_path / "study"
    command = [sys.executable, "-m", "tests.runs.tuning.killed",
               str(tmp_path), str(folder)]  # fmt: skip
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, env=os.environ, timeout=300)
    assert done.returncode == -signal.SIGKILL
    left = runs.load_study(folder)
    assert [x.state for x in left.trials] == ["complete", "running"]
    assert len(left.trials[1].curve) == 1
    again = runs.tune(recipe, SPACE, folder, trials=3)
    assert found_by(again) == found_by(tuned)
    # The trial that was killed had its first epoch already.
    assert yaml.safe_load((folder / "best.yaml").read_text()) == yaml.safe_load(
        (tuned.folder / "best.yaml").read_text()
    )


@pytest.mark.slow
def test_a_trial_that_fails_is_recorded_and_the_study_goes_on(
    tmp_path,
) -> None:
    recipe = small(tmp_path, "epochs=1")
    space = {"batches.classes_per_batch": [2, 50]}
    tuned = runs.tune(recipe, space, tmp_path / "study", trials=2, seed=1)
    states = {
        (x.settings["batches.classes_per_batch"], x.state) for x in tuned.trials
    }
    assert states == {(2, "complete"), (50, "failed")}
    failed = next(x for x in tuned.trials if x.state == "failed")
    assert "50" in failed.error
    assert "50" in (tmp_path / "study" / "trials.csv").read_text()


@pytest.mark.slow
def test_a_trial_below_the_median_is_pruned(tmp_path, monkeypatch) -> None:
    """After the first third of its epochs, or as soon as is asked for."""
    import optuna

    values = iter([0.1, 0.1, 0.1])

    def measured(self) -> dict[str, float]:
        return dict.fromkeys(self.logged_names, next(values))

    monkeypatch.setattr(RetrievalEvaluation, "_measure", measured)
    recipe, folder = small(tmp_path), tmp_path / "study"
    runs.tune(recipe, SPACE, folder, timeout=1e-9)
    good = optuna.trial.create_trial(
        value=0.9, intermediate_values={1: 0.9, 2: 0.9}
    )
    open_study(folder).add_trials([good] * 5)
    runs.tune(recipe, SPACE, folder, trials=6)
    tuned = runs.tune(recipe, SPACE, folder, trials=7, warmup_epochs=0)
    by_number = {x.number: x for x in tuned.trials}
    assert [by_number[x].state for x in (5, 6)] == ["pruned"] * 2
    assert by_number[5].curve == {1: 0.1, 2: 0.1}
    assert by_number[6].curve == {1: 0.1}


@pytest.mark.parametrize(
    ("epochs", "warmup", "first"),
    [(2, None, 2), (8, None, 4), (9, None, 4), (8, 0, 1), (3, 1, 2)],
)
def test_no_trial_is_pruned_in_its_first_epochs(epochs, warmup, first) -> None:
    """By default the first third, after which a low trial is pruned."""
    import optuna

    study = optuna.create_study(direction="maximize")
    for _ in range(5):
        trial = study.ask()
        for epoch in range(1, epochs + 1):
            trial.report(0.9, epoch)
        study.tell(trial, 0.9)
    study.pruner = _pruner(epochs, warmup)
    trial = study.ask()
    for epoch in range(1, epochs + 1):
        trial.report(0.1, epoch)
        assert trial.should_prune() == (epoch >= first)


@pytest.mark.slow
def test_epochs_that_are_not_measured_are_not_reported(
    tmp_path, monkeypatch
) -> None:
    values = iter([0.3, 0.9, 0.6])

    def measured(self) -> dict[str, float]:
        return dict.fromkeys(self.logged_names, next(values))

    monkeypatch.setattr(RetrievalEvaluation, "_measure", measured)
    recipe = small(tmp_path, "epochs=4", "evaluation.every=2")
    (trial,) = runs.tune(recipe, SPACE, tmp_path / "study", trials=1).trials
    assert trial.curve == {1: 0.3, 2: 0.9, 4: 0.6}
    assert trial.value == 0.9


@pytest.mark.slow
def test_no_loss_is_a_failure_and_a_study_of_failures_says_why(
    tmp_path, monkeypatch
) -> None:
    def measured(self) -> dict[str, float]:
        return dict.fromkeys(self.logged_names, float("nan"))

    monkeypatch.setattr(RetrievalEvaluation, "_measure", measured)
    with pytest.raises(ValueError, match="All 1 trials.*is nan after epoch 1"):
        runs.tune(small(tmp_path), SPACE, tmp_path / "study", trials=1)


def test_a_study_of_another_space_or_recipe_is_refused(tmp_path) -> None:
    recipe, folder = small(tmp_path), tmp_path / "study"
    arguments = {"trials": 1, "timeout": 1e-9}
    assert runs.tune(recipe, SPACE, folder, **arguments).trials == []
    with pytest.raises(ValueError, match="the space"):
        runs.tune(recipe, {"epochs": [1, 2]}, folder, **arguments)
    with pytest.raises(ValueError, match="epochs: 2 → 3"):
        runs.tune(small(tmp_path, "epochs=3"), SPACE, folder, **arguments)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FileExistsError, match="is not a study"):
        runs.tune(recipe, SPACE, tmp_path / "other", **arguments)


def test_a_trial_of_a_living_process_is_left_to_it(tmp_path) -> None:
    space = checked(SPACE, small(tmp_path / "recipe"))
    arguments = tmp_path, space, 2, 0

    with ExitStack() as first, ExitStack() as second:
        assert _next(*arguments, first).number == 0
        other = _next(*arguments, second)
        assert other.number == 1
        assert _next(*arguments, second) is None
        first.close()  # Its process is gone.
        again = _next(*arguments, first)
        assert again.number == 0
        assert set(again.params) == set(SPACE)
    states = [x.state.name for x in open_study(tmp_path).trials]
    assert states == ["RUNNING"] * 2


@pytest.mark.parametrize(("name", "value"), [("trials", 0), ("timeout", -1.0)])
def test_budgets_are_checked(name, value, tmp_path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` of tune"):
        runs.tune(small(tmp_path), SPACE, tmp_path / "s", **{name: value})


def test_a_missing_optuna_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"keras-dml\[tune\]"):
        runs.tune(small(tmp_path), SPACE, tmp_path / "study")
