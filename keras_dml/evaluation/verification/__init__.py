"""Verification: thresholds for whether two images have the same class."""
