"""Replicas: how several replicas train a `MetricModel`.

The functions do nothing if there is a single replica.
"""

import logging
from collections.abc import Mapping
from typing import Any

import keras
from keras.src.trainers.data_adapters import get_data_adapter

from keras_dml.distribution.batches import ReplicaBatches, rows_of_replicas
from keras_dml.distribution.gathering import gather_rows
from keras_dml.distribution.strategies import (
    check_optimizer,
    check_parts,
    check_scope,
    strategy_of,
    synchronize,
)
from keras_dml.distribution.workers import (
    alone,
    check_rows,
    devices_of_batches,
    this_worker,
)
from keras_dml.model.checks import BatchChecks
from keras_dml.model.fit_data import FitData, check_batch
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor, Tensors

logger = logging.getLogger(__name__)


def prepare_for_replicas(model: keras.Model) -> None:
    """Prepares a compiled model for training on replicas, if they can."""
    strategy = strategy_of(model)
    if strategy.num_replicas_in_sync == 1:
        return
    check_optimizer(model.optimizer)
    trained = [*model.weights, *model.objective.seed_states()]
    counted = [v for metric in model.metrics for v in metric.variables]
    check_scope([*trained, *model.optimizer.variables, *counted], strategy)
    if model.gather == "none" and model.sampled_rows:
        raise ValueError(
            '`gather` of MetricModel must be "replicas" for a loss with '
            "`class_share`: replicas that see the labels of all replicas draw "
            'the same classes. Received: gather="none" under '
            f'{type(strategy).__name__}. Use gather="replicas", or '
            "class_share=1."
        )
    if model.accumulate > 1:
        check_parts(model)
    elif model.gather == "replicas":
        synchronize(model)


def check_jit(model: keras.Model) -> None:
    """Turns off JIT compilation, where TensorFlow lacks it, with a warning."""
    strategy = strategy_of(model)
    if model.jit_compile is True and strategy.num_replicas_in_sync > 1:
        logger.warning(
            "jit_compile=True does not work under %s: TensorFlow cannot "
            "compile the communication between replicas. The model continues "
            "without it.",
            type(strategy).__name__,
        )
        model.jit_compile = False


def replicate(
    model: keras.Model, data: FitData, shuffle: bool = False
) -> FitData:
    """Divides batches of all replicas, or of this worker, among replicas.

    Raises `ValueError` if each of several workers would shuffle differently.
    """
    strategy = strategy_of(model)
    workers = this_worker(strategy).count
    devices = max(strategy.num_replicas_in_sync, devices_of_batches())
    if devices == workers == 1:
        return data
    if shuffle and workers > 1:
        raise ValueError(
            "Arrays for MetricModel.fit on several workers must come in the "
            "same order on all of them. Received: shuffle=True for batches "
            "that are not class-balanced. Use balanced=True, or shuffle the "
            "rows yourself with the same seed everywhere and use "
            "shuffle=False."
        )
    with alone():  # Keras would divide a dataset in its own way.
        batches = get_data_adapter(
            data.x,
            data.y,
            data.sample_weight,
            data.batch_size,
            data.steps,
            shuffle,
        )
    x = ReplicaBatches(
        batches,
        strategy,
        data.is_share,
        _min_rows(model),
        model.steps_per_execution,
    )
    return FitData(x, checks=data.checks, steps=data.steps)


def one_batch(
    model: keras.Model,
    use: str,
    batch: tuple[Any, Any, Any],
    class_weight: Mapping[int, float] | None = None,
) -> Any:
    """A batch of arrays for a single step, in the form that replicas take."""
    batch = check_batch(batch, BatchChecks(use, model), class_weight)
    check_rows(len(keras.tree.flatten(batch)[0]), devices_of_batches())
    return rows_of_replicas(batch, strategy_of(model), _min_rows(model))


def _min_rows(model: keras.Model) -> int:
    """Number of rows that each replica needs: no mean without rows."""
    return 1 if model.gather == "none" else 0


def check_one_worker(model: keras.Model, name: str) -> None:
    """Raises `ValueError` if several workers would reorder the rows."""
    count = this_worker(strategy_of(model)).count
    if count > 1:
        raise ValueError(
            f"MetricModel.{name} works with one worker only: with several, "
            "Keras returns the rows in a different order. Received: a model "
            f"of {count} workers. Use keras_dml.evaluation.embed(model, x)."
        )


def gather_for_loss(
    model: keras.Model,
    outputs: Tensors,
    targets: Tensors,
    weight: Tensor | None,
) -> tuple[Tensors, Tensors, Tensor | None]:
    """Outputs, targets and weights that a replica compares with each other."""
    labels = targets["label"]
    are_relations = len(labels.shape) == 2 and labels.dtype != tf.bool
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1:
        return outputs, targets, weight
    if model.gather == "none":
        if are_relations:
            raise ValueError(
                '`gather` of MetricModel must be "replicas" for relation '
                "matrices, whose columns are the rows of all replicas. "
                f'Received: gather="none" on {replicas} replicas. Use '
                'gather="replicas", or class ids as labels.'
            )
        return outputs, targets, weight
    outputs, targets, weight = gather_rows((outputs, targets, weight))
    if are_relations:
        square = (labels.shape[1], labels.shape[1])
        labels = tf.ensure_shape(targets["label"], square)
        targets = {**targets, "label": labels}
    return outputs, targets, weight
