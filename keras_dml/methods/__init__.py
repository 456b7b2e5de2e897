"""The methods, one file a paper: head, objective, defaults, citation."""

from keras_dml.methods._abe.method import abe
from keras_dml.methods._attentive_grouping.method import attentive_grouping
from keras_dml.methods._baseline import baseline
from keras_dml.methods._dcml.method import dcml
from keras_dml.methods._diva.method import diva
from keras_dml.methods._divide_and_conquer import divide_and_conquer

METHODS = {
    "abe": abe,
    "attentive_grouping": attentive_grouping,
    "baseline": baseline,
    "dcml": dcml,
    "diva": diva,
    "divide_and_conquer": divide_and_conquer,
}
"""Every method by the name that recipes use."""

__all__ = [
    "METHODS",
    "abe",
    "attentive_grouping",
    "baseline",
    "dcml",
    "diva",
    "divide_and_conquer",
]
