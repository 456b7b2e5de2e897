"""Resuming interrupted training exactly where it stopped."""

from keras_dml.resuming._resume import TERMINATED, Resume, parsed_every
from keras_dml.resuming.generations import StateError

__all__ = ["TERMINATED", "Resume", "StateError", "parsed_every"]
