"""Active pairs: how many of a batch an objective still learns from."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_dml.utils.types import Tensor


def active_pairs(
    model: keras.Model, x: Any, targets: Any, most: int = 64
) -> dict[str, dict[str, float]]:
    """The share of pairs that have a gradient, for each term.

    A pair (i, j), i ≠ j, is active in a term if moving what the head gives
    for image j changes the term of image i. So this holds for every loss
    and every miner: with a hinge it is the pairs that violate the margin,
    with triplets those of a violating triplet, with a softmax over pairs
    all. A term that compares no images of the batch has 0.

    Nothing of the model changes, its random numbers included.

    Args:
        model: A `MetricModel`.
        x: Images, (B, H, W, C), or two views of them.
        targets: (B,) labels, or the dict of the pipeline.
        most: Images to look at: the first of the batch.

    Returns:
        For each term the share of "positive" and of "negative" pairs, in
        0 to 1; a kind of which the batch has no pair is left out.
    """
    if not isinstance(targets, dict):
        targets = {"label": targets}
    x, targets = tf.nest.map_structure(
        lambda value: tf.convert_to_tensor(value)[:most], (x, targets)
    )
    outputs = model.outputs_of(x, training=False)
    # What a momentum network gives are targets, and attention is a means.
    watched = [
        value
        for name, value in outputs.items()
        if name != "attention" and not name.startswith("momentum")
    ]
    labels = np.asarray(targets["label"])
    same = labels[:, None] == labels
    off_diagonal = ~np.eye(len(labels), dtype=bool)
    kinds = {"positive": same & off_diagonal, "negative": ~same}
    found = {}
    for term, active in _active(model, outputs, targets, watched).items():
        found[term] = {
            kind: float(active[pairs].mean())
            for kind, pairs in kinds.items()
            if pairs.any()
        }
    return found


def _active(
    model: keras.Model,
    outputs: dict[str, Tensor],
    targets: dict[str, Tensor],
    watched: list[Tensor],
) -> dict[str, Any]:
    """For each term whether its i-th value depends on image j, (B, B)."""
    state = [
        (variable, ops.convert_to_numpy(variable))
        for variable in model.objective.non_trainable_variables
    ]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(watched)
        terms = model.objective(outputs, targets)
        values = {name: tf.unstack(term) for name, term in terms.items()}
    for variable, value in state:
        variable.assign(value)
    return {
        name: np.stack([_depends(tape, value, watched) for value in anchors])
        for name, anchors in values.items()
    }


def _depends(tape: Any, value: Tensor, watched: list[Tensor]) -> Any:
    """Whether a value depends on each image, (B,)."""
    depends = np.zeros(len(watched[0]), bool)
    for gradient in tape.gradient(value, watched):
        if gradient is not None:
            flat = np.asarray(tf.convert_to_tensor(gradient))
            depends |= (flat.reshape(len(flat), -1) != 0).any(axis=1)
    return depends
