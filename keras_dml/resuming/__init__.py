"""Resuming interrupted training exactly where it stopped.

Open first: `resume`, the callback `Resume`. `states` are those of variables,
random generators and callbacks, `generations` keeps the last two checkpoints,
`resumption` continues amid an epoch, and `identity` refuses the checkpoint of
another model.

Imports: `losses`, `data`, `utils`.
"""

from keras_dml.resuming.generations import StateError
from keras_dml.resuming.resume import TERMINATED, Resume, parsed_every

__all__ = ["TERMINATED", "Resume", "StateError", "parsed_every"]
