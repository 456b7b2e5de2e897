"""Training runs: training and measuring recipes, and reading the results.

Open first: `training`, which makes a folder from a recipe, then `folder`, which
reads one. `measuring` evaluates a model as its recipe says, `benchmark` trains
many recipes of a `plan` and writes `tables`, `tuning` searches for settings.

Imports: `recipes` and below.
"""

from keras_dml.runs.folder import (
    check_output,
    create_folder,
    free_folder,
    last_folder,
    load_model,
    load_recipe,
)
from keras_dml.runs.measuring import (
    Changes,
    Measurement,
    measure,
    remeasure,
)
from keras_dml.runs.outcome import Outcome
from keras_dml.runs.training import train
from keras_dml.runs.tuning import tune
from keras_dml.utils.provenance import versions

__all__ = [
    "Changes",
    "Measurement",
    "Outcome",
    "check_output",
    "create_folder",
    "free_folder",
    "last_folder",
    "load_model",
    "load_recipe",
    "measure",
    "remeasure",
    "train",
    "tune",
    "versions",
]
