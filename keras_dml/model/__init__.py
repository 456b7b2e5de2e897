"""Model: MetricModel, and the interfaces of its head and objective."""

from keras_dml.model.head import Head
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective, Objective

__all__ = ["Head", "LossObjective", "MetricModel", "Objective"]
