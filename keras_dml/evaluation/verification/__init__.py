"""Verification: thresholds for whether two images are of one class."""

from keras_dml.evaluation.verification.threshold import Threshold, calibrate

__all__ = ["Threshold", "calibrate"]
