"""Methods: a file or folder a paper, with head, objective and declaration.

A module in this folder that declares a method needs no line here: the
method is `keras_dml.methods.<name>` all the same.
"""

from typing import TYPE_CHECKING, Any

from keras_dml.methods._abe.method import abe
from keras_dml.methods._attentive_grouping.method import attentive_grouping
from keras_dml.methods._baseline import baseline
from keras_dml.methods._dcml.method import dcml
from keras_dml.methods._diva.method import diva
from keras_dml.methods._divide_and_conquer import divide_and_conquer
from keras_dml.methods.declaration import METHODS, Traits, Uses, declare
from keras_dml.utils.registry import Paper, import_modules

import_modules(__name__)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"module {__name__!r} has no {name!r}")
        return METHODS[name].value


__all__ = [
    "METHODS",
    "Paper",
    "Traits",
    "Uses",
    "abe",
    "attentive_grouping",
    "baseline",
    "dcml",
    "declare",
    "diva",
    "divide_and_conquer",
]
