"""Objective: the interface of objectives, from outputs to named losses."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_dml import losses
from keras_dml.losses import MetricLoss
from keras_dml.losses.base import METRIC
from keras_dml.losses.labels import Rule, is_multi_hot, relations
from keras_dml.utils.serialization import SerializableLayer
from keras_dml.utils.types import Shapes, Tensor, Tensors

_SEED = "seed_state_"
"""Prefix of the names of random generator states in files."""


class Objective(SerializableLayer):
    """Base class of all objectives: (outputs, targets) → {term: (B,)}.

    It is a layer because it may own variables: β of the margin loss, proxies,
    a queue. Subclasses name their terms in `terms`, create their weights in
    `build`, and compute the terms in `call`.

    Args:
        relation_rule: When two examples with several labels are positive to
            each other: if they share "any" label, or "all"; see
            `losses.relations`.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to float32,
            whatever the global policy.

    Attributes:
        terms: Names of the terms, in the order in which they are logged.

    Call arguments:
        outputs: The dict returned by a `Head`.
        targets: Dict of (B,) integers: always `"label"`, and what the sampler
            adds (`"index"`, `"cluster"`, `"learner"`). A boolean `"label"`,
            (B, C), states which of C labels each example has.

    Returns:
        A dict with a (B,) float32 tensor for every name in `terms`. The value
        is 0 for examples that do not take part in a term.

    Example:
        ```python
        @keras.saving.register_keras_serializable()
        class TripletsAndSpread(dml.model.Objective):
            terms = ("triplet", "spread")

            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.loss = dml.losses.TripletLoss()

            def call(self, outputs, targets):
                x, labels = outputs["embedding"], targets["label"]
                triplet = self.loss.per_example(labels, x)
                spread = keras.ops.mean(x @ keras.ops.transpose(x), axis=1)
                return {"triplet": triplet, "spread": spread}
        ```
    """

    terms: tuple[str, ...] = ()

    def __init__(self, relation_rule: Rule = "any", **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.relation_rule = relation_rule

    def __call__(self, outputs: Tensors, targets: Tensors) -> Tensors:
        labels = targets.get("label")
        # Losses apply the other rule themselves.
        if self.relation_rule == "all" and is_multi_hot(labels):
            targets = {**targets, "label": relations(labels, rule="all")}
        terms: Tensors = super().__call__(outputs, targets)
        return terms

    @property
    def label_limit(self) -> int | None:
        """Upper bound of class ids, exclusive; None if any integer is
        valid."""
        return None

    @property
    def needs_positives(self) -> bool:
        """Whether a batch without positive pairs teaches nothing."""
        return False

    @property
    def needs_negatives(self) -> bool:
        """Whether a batch with a single class teaches nothing."""
        return False

    @property
    def needs_triplets(self) -> bool:
        """Whether examples need both a positive and a negative."""
        return False

    def build(self, outputs_shape: Shapes) -> None:
        """Creates the weights.

        Args:
            outputs_shape: Shapes of the head's outputs, by name.
        """

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        raise NotImplementedError

    @property
    def term_weights(self) -> dict[str, Any]:
        """Default weights of the terms, which `loss_weights` override."""
        return {}

    def prepare(self) -> None:
        """Called before a step is traced, for example to load a teacher."""

    def completed(self, inputs: Any, targets: Tensors) -> Tensors:
        """Returns the targets, with those that depend on the inputs.

        Called in every step, outside the gradient: a teacher embeds here.

        Args:
            inputs: The inputs of the model.
            targets: See the call arguments.
        """
        return targets

    def evaluate(self, outputs: Tensors, targets: Tensors) -> Tensors:
        """Returns the terms of a held-out batch.

        Nothing changes: random generators used by mining are restored
        afterwards.

        Args:
            outputs: See the call arguments.
            targets: See the call arguments; `"label"` is sufficient.

        Returns:
            The same as a call.
        """
        seeds = [(v, ops.copy(v)) for v in self.seed_states()]
        terms: Tensors = self(outputs, targets)
        for variable, state in seeds:
            variable.assign(state)
        return terms

    def seed_states(self) -> list[keras.Variable]:
        """States of the random generators, which Keras does not save."""
        weights = {id(v) for v in self.weights}
        return [v for v in self.variables if id(v) not in weights]

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        for number, state in enumerate(self.seed_states()):
            store[f"{_SEED}{number}"] = ops.convert_to_numpy(state)

    def load_own_variables(self, store: Any) -> None:
        # A file that was saved with another miner may have none.
        stored = {key: store[key] for key in store.keys()}
        states = {k: v for k, v in stored.items() if k.startswith(_SEED)}
        super().load_own_variables(
            {k: v for k, v in stored.items() if k not in states}
        )
        for number, variable in enumerate(self.seed_states()):
            if f"{_SEED}{number}" in states:
                variable.assign(np.asarray(states[f"{_SEED}{number}"]))

    def active_learner(self, targets: Tensors) -> Tensor | None:
        """Returns the learner that this step may update.

        Returns:
            None if every step updates everything, otherwise a scalar integer
            tensor: the learner's number, or −1 for all learners.
        """
        return None

    def learner_variables(self) -> list[list[keras.Variable]]:
        """Returns the loss variables that belong to a single learner."""
        return []

    def start_merged(self, class_means: Callable[[int], Tensor]) -> None:
        """Called when training switches from single learners to all at once.

        Args:
            class_means: Function that, given the number of classes, C,
                computes the mean embedding of each class in the training set,
                (C, D), with 0 for classes that do not occur.
        """

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        """Called after the update with the batch, for example to fill a
        queue."""


def check_objective(owner: str, name: str, value: Any) -> Objective:
    """`value`; raises `ValueError` unless it is an objective."""
    # The base class does not define `call`.
    is_base = getattr(type(value), "call", None) is Objective.call
    if is_base or not isinstance(value, Objective):
        raise ValueError(
            f"`{name}` of {owner} must be given as an Objective that defines "
            f"`call`. Received: {value!r}. For a loss, use "
            "methods.EmbeddingObjective(loss)."
        )
    return value


class LossObjective(Objective):
    """Base class of objectives that train with a metric loss.

    The loss is saved and restored with the objective, and built for the whole
    embedding. Objectives on the parts of an ensemble instead call
    `build_parts` in `build`, and use `part_terms`.

    Several losses, a `WeightedSum`, become one term each if the objective
    calls `split_terms` in its constructor and returns the result of
    `loss.term_values` or `part_terms`. An objective that returns
    `loss.per_example` as "metric" has their weighted sum.

    Args:
        loss: A loss of `keras_dml.losses`, or its name or config, as for
            `losses.get`.
        **kwargs: See `Objective`.

    Attributes:
        loss_terms: Names of the loss's terms: "metric", or those of several
            losses.
        loss: The loss as given.
        loss_input: Name of the output of the head that the loss is given,
            unless it is one loss per part.
        part_losses: The loss of each part, after `build_parts`.
        part_layers: Layers that own the variables of these losses, if any.
    """

    terms: tuple[str, ...] = (METRIC,)
    loss_input = "embedding"

    def __init__(self, loss: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss: MetricLoss = losses.get(loss)
        self.loss_terms = tuple(self.loss.term_weights)
        self.part_losses: list[MetricLoss] = []
        self.part_layers: list[keras.layers.Layer] = []

    def split_terms(self) -> None:
        """Replaces "metric" in `terms` by the names of the loss's terms."""
        self.terms = tuple(
            name
            for term in self.terms
            for name in (self.loss_terms if term == METRIC else (term,))
        )

    @property
    def term_weights(self) -> dict[str, Any]:
        weights = self.loss.term_weights
        return {name: w for name, w in weights.items() if name in self.terms}

    @property
    def label_limit(self) -> int | None:
        return self.loss.num_classes

    @property
    def needs_positives(self) -> bool:
        return self.loss.needs_positives

    @property
    def needs_negatives(self) -> bool:
        return self.loss.needs_negatives

    @property
    def needs_triplets(self) -> bool:
        return self.loss.needs_triplets

    def build(self, outputs_shape: Shapes) -> None:
        self.loss.build(self, outputs_shape["embedding"][-1])

    def build_parts(self, outputs_shape: Shapes, name: str = "learner") -> None:
        """Builds the loss of every part.

        A loss without variables is shared by all parts. A loss that owns
        variables stays unbuilt, and is copied for each part: the copies are
        built in child layers, `{name}_{k}`, so that the variables of different
        parts have different names.
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

    def part_terms(
        self, labels: Tensor, parts: Tensor
    ) -> dict[str, list[Tensor]]:
        """Returns the loss of every part, by term.

        Args:
            labels: See `MetricLoss.per_example`.
            parts: (B, K, d) unit sub-embeddings.

        Returns:
            K tensors, (B,), for each of `loss_terms`.
        """
        values = [
            loss.term_values(labels, parts[:, k])
            for k, loss in enumerate(self.part_losses)
        ]
        return {term: [x[term] for x in values] for term in self.loss_terms}

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        if not self.loss.has_memory:
            return
        labels = targets["label"]
        if not self.part_losses:
            inputs = stored_output(outputs, self.loss_input)
            self.loss.remember(labels, inputs)
        for k, loss in enumerate(self.part_losses):
            loss.remember(labels, stored_output(outputs, "parts")[:, k])


def stored_output(outputs: Tensors, name: str) -> Tensor:
    """The output to store in memories: the rows of all replicas.

    If a momentum network has embedded a second view, its output is stored.
    """
    return outputs.get(f"momentum_{name}", outputs[name])
