"""The methods, one file a paper: head, objective, defaults, citation."""

from keras_dml.methods.baseline import baseline
from keras_dml.methods.divide_and_conquer import divide_and_conquer

METHODS = {
    "baseline": baseline,
    "divide_and_conquer": divide_and_conquer,
}
"""Every method by the name that recipes use."""

__all__ = ["METHODS", "baseline", "divide_and_conquer"]
