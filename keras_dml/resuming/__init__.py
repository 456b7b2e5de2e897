"""Resuming interrupted training exactly where it stopped.

Open first: `_resume`, the callback `Resume`. `variables` writes and restores
weights, optimizer and random states, `generations` keeps the last two
checkpoints, `resumption` continues amid an epoch, and `identity` refuses the
checkpoint of another model.

Imports: `losses`, `data`, `utils`.
"""

from keras_dml.resuming._resume import TERMINATED, Resume, parsed_every
from keras_dml.resuming.generations import StateError

__all__ = ["TERMINATED", "Resume", "StateError", "parsed_every"]
