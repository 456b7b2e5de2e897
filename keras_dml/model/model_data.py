"""Data of a `MetricModel`, checked and split as its parts require."""

from typing import Any, NamedTuple

import keras

from keras_dml.distribution.batches import rows_of_replicas, share_of_worker
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.model.batch_checks import BatchChecks
from keras_dml.model.pixels import expects_bytes
from keras_dml.model.replicas import least_rows, replicated
from keras_dml.model.resuming import check_planned
from keras_dml.model.training_data import (
    ClassWeight,
    Prepared,
    checked_batch,
    drawn_seed,
    prepared,
)


class FitData(NamedTuple):
    """The data that a model is fitted to."""

    batches: Prepared
    checks: BatchChecks
    """The checks of the batches."""
    is_share: bool
    """Whether the batches belong to this worker alone."""


def checks_of(
    model: keras.Model, use: str, is_share: bool = False
) -> BatchChecks:
    """The checks of a model's data, by what its objective needs."""
    return BatchChecks(
        use,
        model.objective.label_limit,
        model.objective.needs_positives,
        model.objective.needs_negatives,
        model.objective.needs_triplets,
        expects_bytes(model.backbone),
        is_share,
    )


def fit_data(
    model: keras.Model,
    data: tuple[Any, Any, Any],
    batch_size: int | None,
    steps: int | None,
    class_weight: ClassWeight | None,
    balanced: bool | None,
    shuffle: bool,
) -> FitData:
    """Data of `fit`, before they are split among replicas.

    Args:
        model: The model.
        data: x, y and sample weights, see `MetricModel.fit`.
        batch_size: See `MetricModel.fit`.
        steps: Its `steps_per_epoch`.
        class_weight: See `MetricModel.fit`.
        balanced: See `MetricModel.fit`.
        shuffle: See `MetricModel.fit`.
    """
    x, y, weight = data
    strategy = strategy_of(model)
    share = share_of_worker(x, strategy)
    checks = checks_of(model, "fit", is_share=share is not None)
    batches = prepared(
        x if share is None else share,
        y, weight, checks, batch_size, steps, class_weight, balanced,
        updates=_updates(model), shuffle=shuffle, names=model.label_names,
        draw=lambda: done_by_chief(drawn_seed, strategy),
    )  # fmt: skip
    if batches.sampler is not None:
        check_planned(batches.sampler, batches.steps)
    return FitData(batches, checks, share is not None)


def held_out_data(
    model: keras.Model,
    data: Any,
    checks: BatchChecks,
    batch_size: int | None,
    steps: int | None,
    balanced: bool | None,
) -> Prepared:
    """Data of `evaluate`, in the form that replicas take."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    # A class with a weight of its own has the number it was trained with.
    names = model.label_names if model.objective.label_limit else None
    batches = prepared(
        x, y, weight, checks, batch_size, steps, None, balanced, names=names
    )
    return replicated(model, batches)


def one_batch(
    model: keras.Model,
    use: str,
    batch: tuple[Any, Any, Any],
    class_weight: ClassWeight | None = None,
) -> Any:
    """A batch of arrays for a single step, in the form that replicas take."""
    batch = checked_batch(batch, checks_of(model, use), class_weight)
    return rows_of_replicas(batch, strategy_of(model), least_rows(model))


def _updates(model: keras.Model) -> int:
    """Number of updates of the model so far."""
    optimizer = getattr(model, "optimizer", None)
    return 0 if optimizer is None else int(optimizer.iterations.numpy())
