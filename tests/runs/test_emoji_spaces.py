"""The published spaces of the searches on emoji are those of their trials."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

from keras_dml import recipes
from keras_dml.runs.tuning import read_space

DOCS = Path(__file__).parents[2] / "docs"
SPACES = DOCS / "results" / "spaces"
RECIPES = {"multi_similarity": "baseline"}
"""Studies that have not the name of their recipe."""


def trials() -> dict[str, dict[int, dict[str, Any]]]:
    """Settings of every trial, by study and number."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    with (DOCS / "emoji_trials.csv").open() as file:
        for row in csv.DictReader(file):
            pairs = (x.split("=", 1) for x in row["settings"].split("; "))
            settings = {key: yaml.safe_load(value) for key, value in pairs}
            name = RECIPES.get(row["study"], row["study"])
            found.setdefault(name, {})[int(row["trial"])] = settings
    return found


TRIALS = trials()


def test_every_study_has_a_space() -> None:
    assert {path.stem for path in SPACES.iterdir()} == TRIALS.keys()


@pytest.mark.parametrize("name", TRIALS)
def test_random_trials_are_drawn_from_their_space(name: str) -> None:
    """The first ten of a study, whose draws hang on nothing but the seed."""
    optuna = pytest.importorskip("optuna")
    space = read_space(SPACES / f"{name}.yaml", recipes.load(f"emoji/{name}"))
    for number, settings in sorted(TRIALS[name].items())[:10]:
        sampler = optuna.samplers.TPESampler(seed=number)
        drawn = space.suggest(optuna.create_study(sampler=sampler).ask())
        assert drawn.keys() == settings.keys()
        for key, value in drawn.items():
            expected = settings[key]
            if isinstance(value, float):  # The table has three digits.
                expected = pytest.approx(expected, rel=6e-3)
            assert value == expected, (number, key)
