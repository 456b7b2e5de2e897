"""Methods: one file per paper, with head, objective and declaration.

Open first: `_baseline`, the shortest, then the paper that you know. A file has
a head (a layer), an objective (named losses), and a factory whose signature
becomes the section of a recipe; `declaration` says what a method needs of
sampler, callbacks and views.

Imports: `backbones`, `model` and below; nothing of data.

A module in this folder that declares a method does not need to be listed here:
the method, its head and its objective are available as
`keras_dml.methods.<name>` automatically.

Also known as:
    - pytorch-metric-learning: `trainers`; here, models are compiled and fitted.
"""

from typing import TYPE_CHECKING, Any

import keras

from keras_dml.methods._abe import DivergentObjective, EnsembleHead, abe
from keras_dml.methods._attentive_grouping import (
    GroupedHead,
    GroupedObjective,
    attentive_grouping,
)
from keras_dml.methods._baseline import (
    EmbeddingHead,
    EmbeddingObjective,
    baseline,
)
from keras_dml.methods._dcml import CompositionObjective, LearnersHead, dcml
from keras_dml.methods._diva import (
    Decorrelation,
    DivaObjective,
    TaskHead,
    diva,
)
from keras_dml.methods._diva_tasks import DaNCETask, LossTask, Task, diva_tasks
from keras_dml.methods._divide_and_conquer import (
    AlternatingObjective,
    SlicedHead,
    divide_and_conquer,
)
from keras_dml.methods._dreml import MetaClasses, dreml
from keras_dml.methods._ensemble import (
    Bootstrap,
    IndependentHead,
    IndependentObjective,
    ensemble,
)
from keras_dml.methods._parts import SeparateTasks, SharedTask
from keras_dml.methods._whitening import ProjectionModel, whitening
from keras_dml.methods.declaration import METHODS, Traits, Uses, declare
from keras_dml.utils.registry import Paper, import_modules, no_attribute

import_modules(__name__)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in METHODS:
            return METHODS[name].value
        cls = keras.saving.get_registered_object(f"keras_dml>{name}")
        if getattr(cls, "__module__", "").startswith(f"{__name__}."):
            return cls
        raise no_attribute(__name__, name)


__all__ = [
    "METHODS",
    "AlternatingObjective",
    "Bootstrap",
    "CompositionObjective",
    "DaNCETask",
    "Decorrelation",
    "DivaObjective",
    "DivergentObjective",
    "EmbeddingHead",
    "EmbeddingObjective",
    "EnsembleHead",
    "GroupedHead",
    "GroupedObjective",
    "IndependentHead",
    "IndependentObjective",
    "LearnersHead",
    "LossTask",
    "MetaClasses",
    "Paper",
    "ProjectionModel",
    "SeparateTasks",
    "SharedTask",
    "SlicedHead",
    "Task",
    "TaskHead",
    "Traits",
    "Uses",
    "abe",
    "attentive_grouping",
    "baseline",
    "dcml",
    "declare",
    "diva",
    "diva_tasks",
    "divide_and_conquer",
    "dreml",
    "ensemble",
    "whitening",
]
