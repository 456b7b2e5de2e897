"""What a step of a `MetricModel` does on every backend.

`tensorflow_step` and `jax_step` put it around the gradient, which is theirs.
"""

from typing import Any

from keras import ops

from keras_dml.utils.types import Tensor, Tensors


def loss_of(model: Any, terms: Tensors, sample_weight: Tensor | None) -> Tensor:
    """The weighted mean of the terms, with the losses of layers, ()."""
    per_example = model.weighting(terms, model.optimizer.iterations)
    if sample_weight is not None:
        per_example *= ops.cast(sample_weight, per_example.dtype)
    added = ops.zeros((), per_example.dtype)
    for loss in model.losses:
        added += ops.cast(loss, per_example.dtype)
    return ops.mean(per_example) + added


def remember(model: Any, outputs: Tensors, targets: Tensors) -> None:
    """Moves the momentum network on, and fills memories, after an update."""
    if model.momentum_encoder:
        model.momentum_encoder.update(model.backbone, model.head)
    model.objective.after_step(outputs, targets)


def logged(
    model: Any,
    loss: Tensor,
    terms: Tensors,
    x: Any,
    targets: Tensors,
    outputs: Tensors,
    sample_weight: Tensor | None,
) -> Tensors:
    """The logs, after adding a batch to them."""
    size = ops.shape(next(iter(terms.values())))[0]
    model.loss_tracker.update_state(loss, sample_weight=size)
    for name, tracker in model.term_trackers.items():
        tracker.update_state(terms[name])
    logs: Tensors = model.compute_metrics(
        x, targets["label"], outputs["embedding"], sample_weight
    )
    return logs
