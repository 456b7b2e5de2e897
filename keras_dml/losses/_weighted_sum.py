"""WeightedSum: several losses at once."""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import keras

from keras_dml.losses.base import LOSSES, MetricLoss, get
from keras_dml.losses.composite import (
    COMPOSITES,
    CompositeLoss,
    is_weight,
    joined,
    least,
    scaled,
)
from keras_dml.losses.variables import scope_of
from keras_dml.utils.types import Config, Tensor, Tensors

_NAME = re.compile(r"[A-Za-z0-9][\w.@-]*")
_NOT_NAMES = ("loss", "name", "class_name")


@COMPOSITES.register("weighted_sum")
class WeightedSum(CompositeLoss):
    r"""Weighted sum: several losses at once, each as a separate term.

    $$
    \mathcal{L} = \sum_i w_i \mathcal{L}_i .
    $$

    Each loss keeps its own miner, reduction, distance and weights. In every
    method, each is logged under its name, and its weight can be replaced by
    `loss_weights`; in plain `compile`, only the sum is used.

    Methods, recipes and `losses.get` create a weighted sum from a dict or a
    list, and so do `+` and `*` of losses and numbers.

    Labels:
        Any labels that all of its losses take.

    Args:
        losses: A dict of losses by name, or a list of losses, which get the
            names under which they are registered. Each loss is given as for
            `losses.get`. In a dict, a registered name can also map to a weight
            only, and any name to `{"loss": ..., "weight": ...}`.
        weights: Weight of each loss, by name or in the order of the list: a
            number, a `LearningRateSchedule`, or "learned", as for
            `MetricModel`; the latter two require a `MetricModel`. By default 1.
        name: Name of the instance.

    Raises:
        ValueError: If there are no losses, if a name or weight is invalid, or
            if two losses have the same name.

    Also known as:
        - pytorch-metric-learning: `MultipleLosses(losses, miners, weights)`;
          the miner is an argument of each loss here.

    Example:
        ```python
        WeightedSum({"contrastive": 1.0, "triplet": 0.5})
        TripletLoss(mining="hard") + 0.5 * MultiSimilarityLoss()
        ```
    """

    def __init__(
        self,
        losses: Mapping[str, Any] | Sequence[Any],
        weights: Mapping[str, Any] | Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.losses: dict[str, MetricLoss] = {}
        self.weights: dict[str, Any] = {}
        given = losses if isinstance(losses, Mapping) else _named(losses)
        for key, value in given.items():
            self._add(key, *_loss_and_weight(key, value))
        if not self.losses:
            raise ValueError(
                "`losses` of WeightedSum must not be empty. Received: "
                f"losses={losses!r}."
            )
        self._set_weights(weights)
        self.term_weights  # noqa: B018  Checks them.

    def _add(self, name: str, loss: MetricLoss, weight: Any) -> None:
        if not _NAME.fullmatch(str(name)) or name in _NOT_NAMES:
            raise ValueError(
                "`losses` of WeightedSum must have names of letters, digits "
                f"and underscores, other than {_NOT_NAMES}. Received: {name!r}."
            )
        self.losses[name] = loss
        self.weights[name] = _checked_weight(name, weight)

    def _set_weights(self, weights: Any) -> None:
        if weights is None:
            return
        if not isinstance(weights, Mapping):
            if len(weights) != len(self.losses):
                raise ValueError(
                    "`weights` of WeightedSum must contain one weight per "
                    f"loss. Received: {len(weights)} weights for the losses "
                    f"{list(self.losses)}."
                )
            weights = dict(zip(self.losses, weights, strict=True))
        for name, weight in weights.items():
            if name not in self.losses:
                raise ValueError(
                    "`weights` of WeightedSum must use the names of its "
                    f"losses, {list(self.losses)}. Received: {name!r}."
                )
            self.weights[name] = _checked_weight(name, weight)

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]
        return least(loss.num_classes for loss in self.losses.values())

    @property
    def needs_positives(self) -> bool:  # type: ignore[override]
        return all(loss.needs_positives for loss in self.losses.values())

    @property
    def needs_negatives(self) -> bool:  # type: ignore[override]
        return all(loss.needs_negatives for loss in self.losses.values())

    @property
    def needs_triplets(self) -> bool:  # type: ignore[override]
        return all(loss.needs_triplets for loss in self.losses.values())

    @property
    def owns_variables(self) -> bool:
        return any(loss.owns_variables for loss in self.losses.values())

    @property
    def has_memory(self) -> bool:
        return any(loss.has_memory for loss in self.losses.values())

    @property
    def weights_pairs(self) -> bool:  # type: ignore[override]
        return all(loss.weights_pairs for loss in self.losses.values())

    @property
    def takes_references(self) -> bool:  # type: ignore[override]
        return all(loss.takes_references for loss in self.losses.values())

    @property
    def term_weights(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, loss in self.losses.items():
            weights = scaled(
                "WeightedSum", self.weights[name], loss.term_weights
            )
            terms = joined(name, weights)
            if found.keys() & terms.keys():
                raise ValueError(
                    "Terms of WeightedSum must have different names. Received: "
                    f"{sorted(found.keys() & terms.keys())} twice. Use other "
                    "names for the losses."
                )
            found |= terms
        return found

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        with scope_of(owner):
            for name, loss in self.losses.items():
                # Two losses may have variables of one name.
                child = keras.layers.Layer(dtype="float32", name=name)
                loss.build(child, embedding_dim)
                child.built = True
                setattr(owner, f"{name}_loss", child)

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        values: Tensors = {}
        for name, loss in self.losses.items():
            terms = loss.term_values(labels, embeddings, **kwargs)
            values |= joined(name, terms)
        return values

    def start_from(
        self,
        parts: Sequence[MetricLoss],
        class_means: Tensor | None = None,
    ) -> None:
        for name, loss in self.losses.items():
            of_parts = [part.losses[name] for part in parts]
            loss.start_from(of_parts, class_means)

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        for loss in self.losses.values():
            loss.remember(labels, embeddings, when)

    def copy(self, **changes: Any) -> "WeightedSum":
        """As for `MetricLoss`; changes apply to each of the losses."""
        copies = {name: x.copy(**changes) for name, x in self.losses.items()}
        return WeightedSum(copies, self.weights, name=self.name)

    def get_config(self) -> Config:
        return {
            "losses": {
                name: keras.saving.serialize_keras_object(loss)
                for name, loss in self.losses.items()
            },
            "weights": {
                name: keras.saving.serialize_keras_object(weight)
                for name, weight in self.weights.items()
            },
            "name": self.name,
        }


def added(*losses: Any) -> WeightedSum:
    """The sum of losses, of which those that are sums are taken apart."""
    parts: dict[str, MetricLoss] = {}
    weights: dict[str, Any] = {}
    for loss in map(get, losses):
        is_sum = isinstance(loss, WeightedSum)
        inner = loss.losses if is_sum else {_name_of(loss): loss}
        for first, part in inner.items():
            name = _free_name(first, parts)
            parts[name] = part
            weights[name] = loss.weights[first] if is_sum else 1.0
    return WeightedSum(parts, weights)


def times(loss: MetricLoss, weight: Any) -> WeightedSum:
    """A loss, or all losses of a sum, weighted by `weight`."""
    if not isinstance(loss, WeightedSum):
        return WeightedSum([loss], [weight])
    weights = scaled("WeightedSum", weight, loss.weights)
    return WeightedSum(loss.losses, weights)


def _named(losses: Sequence[Any]) -> dict[str, Any]:
    """The losses of a list by their own names, numbered where they repeat."""
    named: dict[str, Any] = {}
    for given in losses:
        loss, weight = _loss_and_weight(None, given)
        name = _free_name(_name_of(loss), named)
        named[name] = {"loss": loss, "weight": weight}
    return named


def _free_name(first: str, taken: Container[str]) -> str:
    name, number = first, 2
    while name in taken:
        name, number = f"{first}_{number}", number + 1
    return name


def _loss_and_weight(key: str | None, given: Any) -> tuple[MetricLoss, Any]:
    """A loss and its weight, from what stands under `key` or in a list."""
    if key is not None and is_weight(given):
        return get(key), given
    if not isinstance(given, Mapping) or "class_name" in given:
        return get(given), 1.0
    config = dict(given)
    weight = config.pop("weight", 1.0)
    if set(config) == {"loss"}:
        return get(config["loss"]), weight
    if key is not None:
        config.setdefault("name", key)
    return get(config), weight


def _checked_weight(name: str, weight: Any) -> Any:
    if isinstance(weight, Mapping) and "class_name" in weight:
        weight = keras.saving.deserialize_keras_object(weight)
    if not is_weight(weight):
        raise ValueError(
            "`weights` of WeightedSum must be numbers, "
            'LearningRateSchedules, or "learned". Received: '
            f"{weight!r} for {name!r}."
        )
    return weight


def _name_of(loss: MetricLoss) -> str:
    """Its own name if the user gave it one, or that of its class."""
    name, _, number = loss.name.rpartition("_")
    name = name if number.isdigit() else loss.name
    if name.replace("_", "") != type(loss).__name__.lower():
        return str(loss.name)
    for registry in (LOSSES, COMPOSITES):
        for entry in registry.values():
            if entry.value is type(loss):
                return entry.name
    return str(name)
