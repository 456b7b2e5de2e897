"""CompositeLoss: the base class of losses made of other losses."""

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import ops
from keras.optimizers import schedules

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.pairs import PairWeights
from keras_dml.utils.types import Tensor, Tensors


class CompositeLoss(MetricLoss):
    """Base class of losses with several terms, made of other losses.

    Subclasses implement `term_values` and `term_weights`. Objectives log and
    weight each term under its own name; called like any other loss, a composite
    returns the weighted sum.

    Args:
        name: Name of the instance.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    @property
    def term_weights(self) -> dict[str, Any]:
        raise NotImplementedError

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        raise NotImplementedError

    def per_example(
        self,
        labels: Tensor,
        embeddings: Tensor,
        ref_labels: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        pair_weights: PairWeights | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Computes the weighted sum of all terms, (B,); see `MetricLoss`."""
        weights = self.term_weights
        for term, weight in weights.items():
            if not is_number(weight):
                raise ValueError(
                    f"The weight of {term!r} in {type(self).__name__} must be "
                    "a number, unless a MetricModel changes it during "
                    "training, with an objective that returns "
                    f"`loss.term_values(...)`. Received: {weight!r}. Use a "
                    "number, or train with `keras_dml.methods`."
                )
        values = self.term_values(
            labels,
            embeddings,
            ref_labels=ref_labels,
            ref_embeddings=ref_embeddings,
            pair_weights=pair_weights,
            mask=mask,
        )
        total = ops.zeros_like(next(iter(values.values())))
        for term, value in values.items():
            total += weights[term] * value
        return total


def smallest_limit(limits: Iterable[int | None]) -> int | None:
    """The smallest of some limits; None is no limit."""
    return min((x for x in limits if x is not None), default=None)


def _combine(name: str, how: Callable[[Iterable[Any]], Any]) -> Any:
    """A property of a loss that combines those of its parts."""
    return property(lambda self: how(getattr(x, name) for x in self.parts))


class LossOfParts(CompositeLoss):
    """Base class of composites whose traits are those of their losses."""

    @property
    def parts(self) -> Iterable[MetricLoss]:
        """The losses that it is made of."""
        raise NotImplementedError

    num_classes = _combine("num_classes", smallest_limit)
    needs_positives = _combine("needs_positives", all)
    needs_negatives = _combine("needs_negatives", all)
    needs_triplets = _combine("needs_triplets", all)
    owns_variables = _combine("owns_variables", any)
    has_memory = _combine("has_memory", any)
    weights_pairs = _combine("weights_pairs", all)
    takes_references = _combine("takes_references", all)


def build_part(
    owner: keras.layers.Layer, name: str, loss: MetricLoss, embedding_dim: int
) -> None:
    """Creates the variables of one of a composite's losses in its layer.

    They get a separate layer, because variables of two losses may share a name.
    """
    part = keras.layers.Layer(dtype="float32", name=name)
    loss.build(part, embedding_dim)
    part.built = True
    setattr(owner, f"{name}_loss", part)


def name_terms(name: str, terms: dict[str, Any]) -> dict[str, Any]:
    """Names the terms of the loss that is called `name` in a composite.

    The only term of a loss takes its name; several put it before theirs.
    """
    if len(terms) == 1:
        return {name: next(iter(terms.values()))}
    return {f"{name}_{term}": value for term, value in terms.items()}


def is_number(weight: Any) -> bool:
    """Whether a weight is a number, but not a boolean."""
    return isinstance(weight, numbers.Real) and not isinstance(weight, bool)


def is_weight(value: Any) -> bool:
    """Whether something can weight a term; see `LossWeighting`."""
    is_schedule = isinstance(value, schedules.LearningRateSchedule)
    return is_number(value) or is_schedule or value == "learned"


def rescale(owner: str, weight: Any, terms: dict[str, Any]) -> dict[str, Any]:
    """Multiplies the weights of terms by `weight`.

    Raises:
        ValueError: If the result is not one weight per term.
    """
    if list(terms.values()) == [1.0]:  # `weight` may be a schedule.
        return dict.fromkeys(terms, weight)
    if is_number(weight):
        if weight == 1:
            return terms
        if all(is_number(value) for value in terms.values()):
            return {term: weight * value for term, value in terms.items()}
    raise ValueError(
        f"A weight in {owner} that is not a number must belong to a loss with "
        "a single term of weight 1, and weights within a weighted loss must be "
        f"numbers. Received: {weight!r} for a loss with the weights {terms}. "
        "Use `loss_weights` of the model to weight its terms."
    )
