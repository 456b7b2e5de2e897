"""Verification: thresholds for "same class or not", and how sure they are."""
