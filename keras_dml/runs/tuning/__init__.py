"""Hyper-parameter search: trials of a recipe, judged on validation classes."""

from keras_dml.runs.tuning.search import tune
from keras_dml.runs.tuning.space import Space, read_space
from keras_dml.runs.tuning.study import Trial, Tuned, importances, load_study

__all__ = [
    "Space",
    "Trial",
    "Tuned",
    "importances",
    "load_study",
    "read_space",
    "tune",
]
