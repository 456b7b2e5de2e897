"""Verification: thresholds for whether two images have the same class."""

from keras_dml.evaluation.verification.threshold import Threshold, calibrate
from keras_dml.evaluation.verification.trials import evaluate_trials

__all__ = ["Threshold", "calibrate", "evaluate_trials"]
