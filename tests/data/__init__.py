"""Tests of keras_dml.data."""
