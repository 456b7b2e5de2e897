"""The published spaces of searches are those of the published trials."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

from keras_dml import recipes
from keras_dml.runs.tuning import check_space, suggest

DOCS = Path(__file__).parents[2] / "docs"
SPACES = DOCS / "results" / "spaces"
NAMES = {
    "multi_similarity": "baseline",
    "lower_attentive_grouping_block5c": "lower_attentive_grouping",
}
"""Studies that are not named after their recipe."""

Settings = dict[str, Any]


def trials(data: str) -> dict[str, dict[int, Settings]]:
    """Settings of every trial, by folder and name of its space, and number.

    Heads that start from features have spaces of their own.
    """
    trials_by_study: dict[str, dict[int, Settings]] = {}
    with (DOCS / "results" / f"{data}_trials.csv").open() as file:
        for row in csv.DictReader(file):
            start, _, study = row["study"].rpartition(": ")
            folder = f"{data}_{start.replace(' ', '_')}" if start else data
            name = NAMES.get(study, study)
            pairs = (x.split("=", 1) for x in row["settings"].split("; "))
            settings = {key: yaml.safe_load(value) for key, value in pairs}
            trials_by_study.setdefault(f"{folder}/{name}", {})[
                int(row["trial"])
            ] = settings
    return trials_by_study


TRIALS = trials("emoji") | trials("caltech101")


def test_every_study_has_a_space() -> None:
    spaces = {f"{path.parent.name}/{path.stem}" for path in SPACES.glob("*/*")}
    assert spaces == TRIALS.keys()


@pytest.mark.slow
def test_random_trials_are_drawn_from_their_space() -> None:
    """Checks two of the first ten trials, which depend on the seed alone."""
    optuna = pytest.importorskip("optuna")
    for name, numbered in TRIALS.items():
        space = yaml.safe_load((SPACES / f"{name}.yaml").read_text())
        check_space(space, recipes.load(name.replace("_from_features", "")))
        for number, settings in sorted(numbered.items())[:10:5]:
            sampler = optuna.samplers.TPESampler(seed=number)
            trial = optuna.create_study(sampler=sampler).ask()
            drawn = suggest(trial, space)
            assert drawn.keys() == settings.keys(), name
            for key, value in drawn.items():
                expected = settings[key]
                if isinstance(value, float):  # The table has three digits.
                    expected = pytest.approx(float(expected), rel=6e-3)
                assert value == expected, (name, number, key)
