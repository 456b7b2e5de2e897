"""Declaration: everything that is special about a method, beside its factory.

Methods know nothing of data, callbacks and reports. They name what they need
of them, and those who build a recipe or a report look it up.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.registry import Registry
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
        what: Its name in `keras_dml.data` or `keras_dml.callbacks`, or
            itself. A sampler is called with the labels and a callback with
            the training images and the sampler, both also with `seed`.
        keys: Those of its arguments that recipes of the method may set.
        arguments: `(method, batches) → arguments`: what else it is given,
            from what a recipe says of the method and of its batches.
        only_with: An argument of the method and the value with which alone
            it is used; None: always.
    """

    what: str | Callable[..., Any]
    keys: tuple[str, ...] = ()
    arguments: Callable[[Arguments, Arguments], Arguments] = lambda m, b: {}
    only_with: tuple[str, Any] | None = None

    def given(self, method: Arguments, batches: Arguments) -> Arguments:
        """What it is given, beside data and seed."""
        keys = {key: method[key] for key in self.keys}
        return {**keys, **self.arguments(method, batches)}

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
        figures: What the figures and the report of its runs have beside
            those of every run: names in `keras_dml.visualization`, or
            functions `run → figure`, whose docstrings are the captions. One
            that a run has nothing for is left out. "attention_overlays"
            also lets the explorer show where the parts look.
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
        left_out: `method → keys`: arguments of the factory that, with these
            others, are for the sampler or a callback alone.
    """

    part: str = "learner"
    figures: tuple[str | Callable[[Any], Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    sampler: Uses | None = None
    callbacks: tuple[Uses, ...] = ()
    two_views: Callable[[Arguments], str | None] = lambda method: None
    checks: Mapping[str, Callable[[Any, Arguments], None]] = field(
        default_factory=dict
    )
    check_labels: Callable[[Arguments, IntArray, int], None] | None = None
    left_out: Callable[[Arguments], tuple[str, ...]] = lambda method: ()

    @property
    def uses(self) -> list[Uses]:
        """The sampler and the callbacks that it declares."""
        return [x for x in (self.sampler, *self.callbacks) if x is not None]

    @property
    def extra_keys(self) -> set[str]:
        """Keys of its recipes that are no arguments of the factory."""
        return {*self.options, *(key for x in self.uses for key in x.keys)}


def declare(
    name: str, definition: str, traits: Traits | None = None
) -> Callable[[Factory], Factory]:
    """A decorator that makes a factory a method, by name.

    Recipes, the tables of the docs, reports and `keras_dml.methods` then
    have it. Its recipe section has the arguments of the factory, with their
    types, ranges and defaults; its paper is the first under "Reference:" in
    the docstring.

    Args:
        name: What recipes and messages call it.
        definition: What it is, in one line.
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
    return METHODS.register(name, definition, traits=traits or Traits())  # type: ignore[return-value]


def find(name: str) -> tuple[Callable[..., MetricModel], Traits]:
    """The factory and the traits of a method.

    Args:
        name: A name in `METHODS`, or "package.module:function" for a
            factory that is no part of this package, declared or not. Its
            module is imported.

    Raises:
        ValueError: If there is no such method.
    """
    if ":" not in name:
        return METHODS[name].value, METHODS[name].details["traits"]
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ValueError(
            f"The module {module!r} of the method {name!r} cannot be "
            f"imported: {error}. Install it, or add its folder to the "
            "environment variable PYTHONPATH."
        ) from error
    except AttributeError:
        raise ValueError(
            f"The module {module!r} has no {attribute!r}. Received: the "
            f"method {name!r}."
        ) from None
    if not _is_factory(factory):
        raise ValueError(
            f"The method {name!r} must be a function of a backbone that "
            "passes **kwargs on to MetricModel. Received: "
            f"{factory!r}. Write for instance `def {attribute}(backbone, *, "
            "embedding_dim: int = 128, **kwargs)`."
        )
    for entry in METHODS.values():
        if entry.value is factory:
            return factory, entry.details["traits"]
    return factory, Traits()


def _is_factory(value: Any) -> bool:
    if not callable(value):
        return False
    parameters = list(inspect.signature(value).parameters.values())
    kinds = [parameter.kind for parameter in parameters]
    return inspect.Parameter.VAR_KEYWORD in kinds and (
        parameters[0].name == "backbone"
    )
