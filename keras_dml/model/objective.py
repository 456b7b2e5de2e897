"""Objective: the contract of objectives, from outputs to named losses."""

from typing import Any

import keras

from keras_dml.losses import MetricLoss
from keras_dml.utils.serialization import SerializableLayer
from keras_dml.utils.types import Shapes, Tensor, Tensors


class Objective(SerializableLayer):
    """Base of all objectives: (outputs, targets) → {term: (B,)}.

    A layer, because it may own variables: β of the margin loss, proxies, a
    queue. Subclasses name their terms in `terms`, create their weights in
    `build`, and compute the terms in `call`.

    Attributes:
        terms: Names of the terms, in the order in which they are logged.

    Call arguments:
        outputs: The dict of a `Head`.
        targets: Dict of (B,) integers: `"label"` always, and what the
            sampler sends along (`"index"`, `"cluster"`, `"learner"`).

    Returns:
        A dict with a (B,) float32 tensor for every name in `terms`. An
        example that takes no part in a term has 0 there.
    """

    terms: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)

    def build(self, outputs_shape: Shapes) -> None:
        """Creates the weights.

        Args:
            outputs_shape: Shapes of the head's outputs, by name.
        """

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        raise NotImplementedError

    def active_learner(self, targets: Tensors) -> Tensor | None:
        """Which learner this step may update.

        Returns:
            None if every step updates everything, else a scalar integer
            tensor: the learner's number, or −1 for all.
        """
        return None

    def learner_variables(self) -> list[list[keras.Variable]]:
        """Variables of a loss that belong to one learner alone."""
        return []

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        """Called after the update, with what the step saw: queues."""


class LossObjective(Objective):
    """Base of objectives that train with a metric loss.

    The loss is saved and restored with the objective, and built for the
    whole embedding. Objectives on the parts of an ensemble call `build_parts`
    in `build` instead, and use `part_values`.

    Args:
        loss: A loss of `keras_dml.losses`.
        **kwargs: As for `Objective`.

    Attributes:
        loss: The loss as it was given.
        part_losses: That of each part, after `build_parts`.
        part_layers: What owns their variables, if they have any.
    """

    terms: tuple[str, ...] = ("metric",)

    def __init__(self, loss: MetricLoss, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss = loss
        self.part_losses: list[MetricLoss] = []
        self.part_layers: list[keras.layers.Layer] = []

    def build(self, outputs_shape: Shapes) -> None:
        self.loss.build(self, outputs_shape["embedding"][-1])

    def build_parts(self, outputs_shape: Shapes, name: str = "learner") -> None:
        """Builds the loss of every part.

        A loss without variables serves all. One that owns some is left as it
        is, and copied for each part: the copies are built in child layers,
        `{name}_{k}`, so that one part's variables can be told from another's.
        """
        _, parts, dim = outputs_shape["parts"]
        if not self.loss.owns_variables:
            self.loss.build(self, dim)
            self.part_losses = [self.loss] * parts
            return
        for k in range(parts):
            owner = keras.layers.Layer(dtype="float32", name=f"{name}_{k}")
            copy = self.loss.copy()
            copy.build(owner, dim)
            owner.built = True
            self.part_layers.append(owner)
            self.part_losses.append(copy)

    def part_values(self, labels: Tensor, parts: Tensor) -> list[Tensor]:
        """The loss of every part.

        Args:
            labels: As for `MetricLoss.per_example`.
            parts: (B, K, d) unit sub-embeddings.

        Returns:
            K tensors, (B,).
        """
        return [
            loss.per_example(labels, parts[:, k])
            for k, loss in enumerate(self.part_losses)
        ]
