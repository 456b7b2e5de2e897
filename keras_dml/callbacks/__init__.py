"""Keras callbacks for evaluation, checkpoints, logging and re-clustering.

Open first: `logs`, with `RetrievalEvaluation`, then `recluster`, which divides
a training set anew every few epochs. `checkpoint` keeps the best model,
`projector` writes what TensorBoard's projector shows.

Imports: `visualization`, `evaluation` and below.
"""

from typing import TYPE_CHECKING

from keras_dml.callbacks.checkpoint import Checkpoint
from keras_dml.callbacks.guard import Guard
from keras_dml.callbacks.hard_classes import HardClasses
from keras_dml.callbacks.logs import LearningRateMonitor, RetrievalEvaluation
from keras_dml.callbacks.projector import export_projector
from keras_dml.callbacks.recluster import Recluster
from keras_dml.callbacks.surrogate_labels import SurrogateLabels
from keras_dml.resuming import Resume
from keras_dml.utils.registry import attribute_hints

if not TYPE_CHECKING:
    __getattr__ = attribute_hints(__name__)

__all__ = [
    "Checkpoint",
    "Guard",
    "HardClasses",
    "LearningRateMonitor",
    "Recluster",
    "Resume",
    "RetrievalEvaluation",
    "SurrogateLabels",
    "export_projector",
]
