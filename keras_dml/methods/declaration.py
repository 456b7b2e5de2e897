"""Declaration: everything that is special about a method, beside its factory.

Methods know nothing of data, callbacks and reports. They name what they need
of them, and those who build a recipe or a report look it up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.registry import Paper, Registry
from keras_dml.utils.types import IntArray

Arguments: TypeAlias = Mapping[str, Any]
"""A section of a recipe: what a method's recipe says, by name."""

Factory = TypeVar("Factory", bound=Callable[..., MetricModel])

METHODS: Registry[Callable[..., MetricModel]] = Registry("method")
"""Every method by the name that recipes use."""


@dataclass(frozen=True)
class Uses:
    """A sampler or a callback that a method trains with.

    Attributes:
        name: Its name in `keras_dml.data` or `keras_dml.callbacks`.
        keys: Those of its arguments that recipes of the method may set.
        arguments: `(method, batches) → arguments`: what else it is given,
            from what a recipe says of the method and of its batches.
        only_with: An argument of the method and the value with which alone
            it is used; None: always.
    """

    name: str
    keys: tuple[str, ...] = ()
    arguments: Callable[[Arguments, Arguments], Arguments] = lambda m, b: {}
    only_with: tuple[str, Any] | None = None

    def is_used(self, method: Arguments) -> bool:
        """Whether a method with these arguments trains with it."""
        if self.only_with is None:
            return True
        name, value = self.only_with
        return bool(method[name] == value)


@dataclass(frozen=True)
class Traits:
    """What is special about a method.

    Attributes:
        part: What it calls one of the embedding's parts.
        options: Keys of its recipes, with their defaults, that say how it
            is trained and are no arguments of the factory.
        sampler: Its batches; those of `ClassBalanced` if None.
        callbacks: What has to run beside its training.
        two_views: `method → sentence`: why a batch must hold two views of
            every image, with these arguments; None if it need not.
        checks: For an argument, `(value, method) → None`, which raises
            `ValueError` if it does not go with the others.
        check_labels: `(method, labels, images of a class in a batch) →
            None`, which warns if the training set does not suffice.
        figures: Figures of its reports, beside those that every model has
            with the same outputs.
    """

    part: str = "learner"
    options: Mapping[str, Any] = field(default_factory=dict)
    sampler: Uses | None = None
    callbacks: tuple[Uses, ...] = ()
    two_views: Callable[[Arguments], str | None] = lambda method: None
    checks: Mapping[str, Callable[[Any, Arguments], None]] = field(
        default_factory=dict
    )
    check_labels: Callable[[Arguments, IntArray, int], None] | None = None
    figures: tuple[str, ...] = ()


def declare(
    name: str,
    definition: str,
    paper: Paper | None = None,
    traits: Traits | None = None,
) -> Callable[[Factory], Factory]:
    """A decorator that makes a factory a method, by name.

    Recipes, the tables of the docs, reports and `keras_dml.methods` then
    have it. Its recipe section has the arguments of the factory, with their
    types, ranges and defaults.

    Args:
        name: What recipes and messages call it.
        definition: What it is, in one line.
        paper: Where it was published.
        traits: What is special about it, if anything.

    Example:
        ```python
        @declare("mine", "two embeddings side by side")
        def mine(
            backbone: str | keras.Model = "small_convnet",
            *,
            embedding_dim: int = 128,
            **kwargs: Any,
        ) -> MetricModel: ...
        ```
    """
    return METHODS.register(name, definition, paper, traits=traits or Traits())  # type: ignore[return-value]


def traits_of(factory: Callable[..., MetricModel]) -> Traits:
    """What is special about a method; nothing, if it is not declared."""
    for entry in METHODS.values():
        if entry.value is factory:
            return entry.details["traits"]
    return Traits()
