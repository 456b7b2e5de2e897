"""Resuming interrupted training exactly where it stopped.

Open first: `resume`, the callback `Resume` and the last two checkpoints, which
it keeps. `states` are those of variables, random generators and callbacks, and
the identity of a training; `resumption` continues amid an epoch.

Imports: `losses`, `data`, `utils`.
"""

from keras_dml.resuming.resume import (
    TERMINATED,
    Resume,
    StateError,
    parsed_every,
)

__all__ = ["TERMINATED", "Resume", "StateError", "parsed_every"]
