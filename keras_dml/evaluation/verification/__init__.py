"""Verification: thresholds for whether two images have the same class."""

from keras_dml.evaluation.verification.threshold import Threshold, calibrate

__all__ = ["Threshold", "calibrate"]
