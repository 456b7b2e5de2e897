"""Model: MetricModel, and the interfaces of its head and objective.

Open first: `metric_model`, whose `train_step` is the only one, then `head` and
`objective`, the contracts of every method. What `fit` is given becomes checked,
balanced batches in `fit_data`; `update` applies gradients;
`loss_weighting`, `momentum` and `accumulation` are parts of the step.

Imports: `resuming`, `losses`, `distribution`, `layers`, `data`, `utils`.
"""

from keras_dml.model.head import Head
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective, Objective

__all__ = ["Head", "LossObjective", "MetricModel", "Objective"]
