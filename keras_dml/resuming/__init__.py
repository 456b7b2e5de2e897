"""Resuming: a training that is killed goes on where it was."""

from keras_dml.resuming._resume import Resume

__all__ = ["Resume"]
