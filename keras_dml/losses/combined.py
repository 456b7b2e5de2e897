"""Losses of several losses and of functions, `get`, and losses as functions."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

import keras
from keras import ops

from keras_dml.losses.base import COMPOSITES, LOSSES, MetricLoss
from keras_dml.losses.composite import (
    LossOfParts,
    build_part,
    is_weight,
    name_terms,
    rescale,
)
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.losses.variables import scope_of
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.serialization import deserialize_object, parameters_of
from keras_dml.utils.trust import import_named
from keras_dml.utils.types import Config, Tensor, Tensors

_NAME = re.compile(r"[A-Za-z0-9][\w.@-]*")
_NOT_NAMES = ("loss", "name", "class_name")
_REDUCTIONS = ("sum_over_batch_size", "mean", "none", None, "sum")


@COMPOSITES.register("weighted_sum")
class WeightedSum(LossOfParts):
    r"""Weighted sum: several losses at once, each as a separate term.

    $$
    \mathcal{L} = \sum_i w_i \mathcal{L}_i .
    $$

    Each loss keeps its own miner, reduction, distance and weights. In every
    method, each is logged under its name, and its weight can be replaced by
    `loss_weights`; in plain `compile`, only the sum is used. Where a weight is
    a schedule, a number or "learned" replaces only the value at which it ends.
    Ensembles apply each loss to every learner. Methods with several tasks put
    the task before the name: `task_hard` (DCML), `discriminative_hard` (DiVA).

    Methods, recipes and `losses.get` create a weighted sum from a dict or a
    list, and so do `+` and `*` of losses and numbers.

    When to use it:
        Several losses at once, such as one on pairs and one on proxies.

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
        by_name = (
            losses if isinstance(losses, Mapping) else _by_own_name(losses)
        )
        for key, value in by_name.items():
            if not _NAME.fullmatch(str(key)) or key in _NOT_NAMES:
                raise ValueError(
                    "`losses` of WeightedSum must have names of letters, "
                    f"digits and underscores, other than {_NOT_NAMES}. "
                    f"Received: {key!r}."
                )
            self.losses[key], weight = _loss_and_weight(key, value)
            self.weights[key] = _check_weight(key, weight)
        if not self.losses:
            raise ValueError(
                "`losses` of WeightedSum must not be empty. Received: "
                f"losses={losses!r}."
            )
        self._set_weights(weights)
        self.term_weights  # noqa: B018  Checks them.

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
            self.weights[name] = _check_weight(name, weight)

    @property
    def parts(self) -> Iterable[MetricLoss]:
        return self.losses.values()

    @property
    def term_weights(self) -> dict[str, Any]:
        total: dict[str, Any] = {}
        for name, loss in self.losses.items():
            weights = rescale(
                "WeightedSum", self.weights[name], loss.term_weights
            )
            terms = name_terms(name, weights)
            if total.keys() & terms.keys():
                raise ValueError(
                    "Terms of WeightedSum must have different names. Received: "
                    f"{sorted(total.keys() & terms.keys())} twice. Use other "
                    "names for the losses."
                )
            total |= terms
        return total

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        with scope_of(owner):
            for name, loss in self.losses.items():
                build_part(owner, name, loss, embedding_dim)

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        values: Tensors = {}
        for name, loss in self.losses.items():
            terms = loss.term_values(labels, embeddings, **kwargs)
            values |= name_terms(name, terms)
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

    @classmethod
    def of(cls, *losses: Any) -> "WeightedSum":
        """The sum of losses; sums among them are flattened."""
        parts: dict[str, MetricLoss] = {}
        weights: dict[str, Any] = {}
        for loss in map(get, losses):
            is_sum = isinstance(loss, WeightedSum)
            inner = loss.losses if is_sum else {_name_of(loss): loss}
            for first, part in inner.items():
                name = _free_name(first, parts)
                parts[name] = part
                weights[name] = loss.weights[first] if is_sum else 1.0
        return cls(parts, weights)

    def times(self, weight: Any) -> "WeightedSum":
        """The sum with every weight multiplied by `weight`."""
        weights = rescale("WeightedSum", weight, self.weights)
        return WeightedSum(self.losses, weights)

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


def _by_own_name(losses: Sequence[Any]) -> dict[str, Any]:
    """The losses of a list by their own names, numbered where they repeat."""
    by_name: dict[str, Any] = {}
    for value in losses:
        loss, weight = _loss_and_weight(None, value)
        name = _free_name(_name_of(loss), by_name)
        by_name[name] = {"loss": loss, "weight": weight}
    return by_name


def _free_name(first: str, used_names: Container[str]) -> str:
    name, number = first, 2
    while name in used_names:
        name, number = f"{first}_{number}", number + 1
    return name


def _loss_and_weight(key: str | None, value: Any) -> tuple[MetricLoss, Any]:
    """A loss and its weight, from a dict's value at `key` or a list's."""
    if key is not None and is_weight(value):
        return get(key), value
    if not isinstance(value, Mapping) or "class_name" in value:
        return get(value), 1.0
    config = dict(value)
    weight = config.pop("weight", 1.0)
    if set(config) == {"loss"}:
        return get(config["loss"]), weight
    if key is not None:
        config.setdefault("name", key)
    return get(config), weight


def _check_weight(name: str, weight: Any) -> Any:
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
    """The name that the user gave a loss, or else that of its class."""
    name, _, number = loss.name.rpartition("_")
    name = name if number.isdigit() else loss.name
    if name.replace("_", "") != type(loss).__name__.lower():
        return str(loss.name)
    for registry in (LOSSES, COMPOSITES):
        for entry in registry.values():
            if entry.value is type(loss):
                return entry.name
    return str(name)


@COMPOSITES.register("function")
class FunctionLoss(MetricLoss):
    r"""Function: a loss given as a function or as a Keras loss.

    `losses.get`, and therefore every method, wraps functions in this class. It
    does not support references or pair weights; for these, derive a class from
    `PairLoss`.

    $$
    \ell_i = f(y, x)_i
    $$

    for a function $f$ of all labels and embeddings in the batch.

    When to use it:
        A loss of your own that needs no class.

    Labels:
        Any labels that the function takes.

    Args:
        function: A function of `(labels, embeddings)` that returns the loss of
            the batch, a scalar, or of every example, (B,). Or a
            `keras.losses.Loss`, whose `call` returns one of these, and whose
            `reduction` is applied.
        normalize: Whether to L2-normalize the embeddings first. Those of a
            `MetricModel` already have unit length.
        needs_positives: Whether the function needs at least two examples of the
            same class in a batch. If so, `fit` warns about batches without
            them.
        name: Name of the instance; by default that of the function.

    Raises:
        ValueError: If `function` is not callable, or is a Keras loss with a
            reduction other than mean, sum or none.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `FunctionLoss(lambda y, x: keras.ops.mean(x**2))(labels, embeddings)`

    Requirements:
        To save a model with this loss, the function must be known to Keras:
        decorate it with `keras.saving.register_keras_serializable`.
    """

    takes_references = False
    needs_negatives = False  # As far as is known.

    def __init__(
        self,
        function: Callable[..., Any] | keras.losses.Loss,
        normalize: bool = False,
        needs_positives: bool = True,
        name: str | None = None,
    ) -> None:
        name = name or getattr(function, "__name__", None)
        name = name or getattr(function, "name", None)
        super().__init__(
            normalize=normalize, name=None if name == "<lambda>" else name
        )
        if not callable(function):
            raise ValueError(
                "`function` of FunctionLoss must be a function of labels and "
                f"embeddings, or a Keras loss. Received: {function!r}."
            )
        self.function = function
        self.needs_positives = needs_positives
        self._is_sum = False
        if isinstance(function, keras.losses.Loss):
            if function.reduction not in _REDUCTIONS:
                raise ValueError(
                    "`function` of FunctionLoss must have one of the "
                    f"reductions {_REDUCTIONS}. Received: {function!r} with "
                    f"reduction={function.reduction!r}."
                )
            self._is_sum = function.reduction == "sum"

    def call(self, batch: Batch) -> Tensor:
        if any(value is not None for value in batch[2:]):
            raise ValueError(
                f"The function {self.name!r} only takes labels and embeddings, "
                "without references or pair weights. To use these, derive a "
                "loss from `keras_dml.losses.PairLoss` instead."
            )
        function: Callable[..., Any] = self.function
        if isinstance(function, keras.losses.Loss):
            function = function.call
        values = ops.convert_to_tensor(function(batch.labels, batch.embeddings))
        values = ops.cast(values, "float32")
        size = ops.shape(batch.embeddings)[0]
        if len(values.shape) == 0:
            return ops.broadcast_to(values, (size,))
        if len(values.shape) != 1:
            raise ValueError(
                f"The function {self.name!r} must return a scalar, or one "
                "value per example, (B,). Received: a result of shape "
                f"{tuple(values.shape)}."
            )
        return values * ops.cast(size, "float32") if self._is_sum else values


def get(identifier: Any) -> MetricLoss:
    """Returns the loss described by an identifier.

    Args:
        identifier: A loss; a name in `LOSSES`; a dict with a name and
            arguments, `{"name": "margin", "beta": 1.1}`; several losses, as a
            dict by name or a list, see `WeightedSum`; a function of labels and
            embeddings, a `keras.losses.Loss`, or the import path of one,
            "package.module:function", see `FunctionLoss`; or a loss serialized
            by Keras.

    Raises:
        ValueError: If the name or an argument is unknown; the message suggests
            the nearest known one.
    """
    spec = identifier
    if isinstance(spec, Mapping) and "class_name" in spec:
        spec = deserialize_object("loss", spec)
    if isinstance(spec, MetricLoss):
        return spec
    if isinstance(spec, str):
        spec = {"name": spec}
    if isinstance(spec, Mapping) and "name" in spec:
        return _by_name(dict(spec))
    if isinstance(spec, list | tuple) or is_several(spec):
        return WeightedSum(spec)
    if isinstance(spec, keras.losses.Loss) or (
        callable(spec) and not isinstance(spec, type)
    ):
        return FunctionLoss(spec)
    hint = ""
    if isinstance(spec, Mapping) and spec:
        key = next(iter(spec))
        nearest = did_you_mean(key, (*LOSSES, *COMPOSITES, "name"))
        hint = (
            f" There is no loss {key!r}.{nearest} An argument needs its loss: "
            f"{{name: NAME, {key}: {spec[key]!r}}}."
        )
    raise ValueError(
        "`loss` must be a MetricLoss, its name, a dict with its name and "
        "arguments, several losses in a dict by name or a list, or a "
        f"function. Received: loss={identifier!r}.{hint} Use one of "
        f"{(*LOSSES, *COMPOSITES)}."
    )


def _by_name(config: dict[str, Any]) -> MetricLoss:
    name = config["name"]
    if name in COMPOSITES or (name not in LOSSES and COMPOSITES.known_as(name)):
        return COMPOSITES.resolve(config)
    module, colon, attribute = str(name).rpartition(":")
    if colon and len(config) == 1:
        try:
            value = getattr(import_named(module), attribute, None)
        except ImportError:  # The registry raises a better error.
            value = None
        is_known = attribute in LOSSES or isinstance(value, type)
        if callable(value) and not is_known:
            return FunctionLoss(value)
    return LOSSES.resolve(config)


def is_several(losses: Any) -> bool:
    """Whether a dict without a name has losses as keys or values."""
    if not isinstance(losses, Mapping) or not losses:
        return False
    names = (*LOSSES, *COMPOSITES)
    return any(
        key in names
        or ":" in str(key)
        or isinstance(value, Mapping | MetricLoss | keras.losses.Loss)
        for key, value in losses.items()
    )


# They concern the object, its variables, or steps before `call`.
_NO_ARGUMENTS = {
    "name", "normalize", "num_classes", "initializer", "learn_beta",
    "class_share",
}  # fmt: skip
_NO_ARGUMENTS_ON_PROXIES = _NO_ARGUMENTS | {"seed"}


def functional(name: str, cls: type[MetricLoss]) -> Callable[..., Tensor]:
    """The pure function of a loss.

    It takes the tensors of `MetricLoss.per_example`, or of `values` of a
    `ProxyLoss`: float32, and normalized if necessary. Its keyword arguments are
    those of the class, except that numbers may be tensors, and `seed` may be
    anything that `keras.random` takes.
    """
    is_on_proxies = issubclass(cls, ProxyLoss)
    method = ProxyLoss.values if is_on_proxies else MetricLoss.per_example
    no_arguments = _NO_ARGUMENTS_ON_PROXIES if is_on_proxies else _NO_ARGUMENTS
    tensors = list(signature(method).parameters.values())[1:]
    arguments = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in parameters_of(cls).values()
        if parameter.name not in no_arguments
    ]
    call_signature = Signature([*tensors, *arguments], return_annotation=Tensor)

    def function(*args: Any, **kwargs: Any) -> Tensor:
        bound = call_signature.bind(*args, **kwargs)
        bound.apply_defaults()
        # A constructor cannot check the values of tensors in a graph.
        later = {k: v for k, v in bound.kwargs.items() if ops.is_tensor(v)}
        config = {k: v for k, v in bound.kwargs.items() if k not in later}
        if issubclass(cls, PairLoss):
            # A generator is a variable, which no call may create.
            later["miner"] = get_miner(config["mining"])
            later["seed_generator"] = config.pop("seed")
            config["mining"] = "all"
        if is_on_proxies:
            config["num_classes"] = 2  # `values` counts the proxies.
        loss: Any = cls(name=name, **config)
        for key, value in later.items():
            setattr(loss, key, value)
        if is_on_proxies:
            return loss.values(*bound.args)
        return loss.call(Batch(*bound.args))

    function.__name__ = function.__qualname__ = name
    function.__module__ = cls.__module__.partition("._")[0]
    function.__doc__ = f"The (B,) values of `{cls.__name__}`; see this class."
    vars(function)["__signature__"] = call_signature
    return function
