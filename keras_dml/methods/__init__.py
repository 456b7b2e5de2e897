"""The methods, one file a paper: head, objective, defaults, citation."""

from keras_dml.methods.abe import abe
from keras_dml.methods.attentive_grouping import attentive_grouping
from keras_dml.methods.baseline import baseline
from keras_dml.methods.dcml import dcml
from keras_dml.methods.diva import diva
from keras_dml.methods.divide_and_conquer import divide_and_conquer

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
