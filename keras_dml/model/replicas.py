"""Replicas: what a `MetricModel` does where several of them train it.

Functions of the model, which do nothing where there is one replica.
"""

import logging

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import get_data_adapter

from keras_dml.distribution.batches import ReplicaBatches
from keras_dml.distribution.gathering import gathered
from keras_dml.distribution.strategies import (
    check_optimizer,
    check_parts,
    check_scope,
    strategy_of,
    synchronize,
)
from keras_dml.distribution.workers import this_worker
from keras_dml.model.training_data import Prepared
from keras_dml.utils.types import Tensor, Tensors

logger = logging.getLogger(__name__)


def prepare_for_replicas(model: keras.Model) -> None:
    """Makes a compiled model one that replicas can train.

    Raises:
        ValueError: If they cannot.
    """
    strategy = strategy_of(model)
    if strategy.num_replicas_in_sync == 1:
        return
    check_optimizer(model.optimizer)
    trained = [*model.weights, *model.objective.seed_states()]
    counted = [v for metric in model.metrics for v in metric.variables]
    check_scope([*trained, *model.optimizer.variables, *counted], strategy)
    if model.gather == "none" and model._sampled_rows:
        raise ValueError(
            '`gather` of MetricModel must be "replicas" with a loss with '
            "`class_share`: replicas that see the labels of all draw the "
            'same classes. Received: gather="none" under '
            f'{type(strategy).__name__}. Use gather="replicas", or '
            "class_share=1."
        )
    if model.accumulate > 1:
        check_parts(model)
    elif model.gather == "replicas":
        synchronize(model)


def check_jit(model: keras.Model) -> None:
    """Turns off what TensorFlow does not compile, and says so."""
    strategy = strategy_of(model)
    if model.jit_compile is True and strategy.num_replicas_in_sync > 1:
        logger.warning(
            "jit_compile=True does not work under %s: TensorFlow does not "
            "compile what replicas send each other. The model continues "
            "without it.",
            type(strategy).__name__,
        )
        model.jit_compile = False


def replicated(
    model: keras.Model,
    data: Prepared,
    shuffle: bool = False,
    is_share: bool = False,
) -> Prepared:
    """Batches as the replicas take them.

    Args:
        model: The model.
        data: Batches of all replicas.
        shuffle: As for `fit`.
        is_share: Whether the batches are those of this worker alone.

    Raises:
        ValueError: If several workers would shuffle each in its own way.
    """
    strategy = strategy_of(model)
    if strategy.num_replicas_in_sync == 1:
        return data
    if shuffle and this_worker(strategy).count > 1:
        raise ValueError(
            "Arrays for MetricModel.fit on several workers must come in "
            "an order that all of them know. Received: shuffle=True for "
            "batches that are not class-balanced. Use balanced=True, or "
            "shuffle the rows yourself, by one seed, with shuffle=False."
        )
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
        is_share,
        least_rows(model),
        model.steps_per_execution,
    )
    return Prepared(x, steps=data.steps)


def least_rows(model: keras.Model) -> int:
    """Rows that a replica must have of a batch: of none there is no mean."""
    return 1 if model.gather == "none" else 0


def check_one_worker(model: keras.Model, name: str) -> None:
    """Raises `ValueError` where several workers would mix up the rows.

    Args:
        model: The model.
        name: The method that returns them.
    """
    count = this_worker(strategy_of(model)).count
    if count > 1:
        raise ValueError(
            f"MetricModel.{name} is for one worker: of several, Keras "
            "returns the rows in another order. Received: a model of "
            f"{count} workers. Use keras_dml.evaluation.embed(model, x)."
        )


def compared(
    model: keras.Model,
    outputs: Tensors,
    targets: Tensors,
    weight: Tensor | None,
) -> tuple[Tensors, Tensors, Tensor | None]:
    """Outputs, targets and weights that a replica compares with each other.

    Raises:
        ValueError: If its own rows are to be compared by a relation matrix,
            whose columns are the rows of all.
    """
    labels = targets["label"]
    are_relations = len(labels.shape) == 2 and labels.dtype != tf.bool
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1:
        return outputs, targets, weight
    if model.gather == "none":
        if are_relations:
            raise ValueError(
                '`gather` of MetricModel must be "replicas" with relation '
                "matrices, whose columns are the rows of all replicas. "
                f'Received: gather="none" on {replicas} replicas. Use '
                'gather="replicas", or class ids as labels.'
            )
        return outputs, targets, weight
    outputs, targets, weight = gathered((outputs, targets, weight))
    if are_relations:
        square = (labels.shape[1], labels.shape[1])
        labels = tf.ensure_shape(targets["label"], square)
        targets = {**targets, "label": labels}
    return outputs, targets, weight
