"""Declaration: everything that is specific to a method, beside its factory.

Methods do not depend on data, callbacks and reports. They name what they need
from them, and the code that builds a recipe or a report looks it up.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.registry import Registry
from keras_dml.utils.trust import import_named
from keras_dml.utils.types import IntArray

Arguments: TypeAlias = Mapping[str, Any]
"""A section of a recipe: the settings of a method, by name."""

Factory = TypeVar("Factory", bound=Callable[..., MetricModel])

METHODS: Registry[Callable[..., MetricModel]] = Registry("method")
"""All methods by their names, which recipes use."""


@dataclass(frozen=True)
class Uses:
    """A sampler or a callback that a method trains with.

    Attributes:
        what: Its name in `keras_dml.data` or `keras_dml.callbacks`, or the
            class itself. A sampler is called with the labels, and a callback
            with the training images and the sampler; both also with `seed`.
        keys: Arguments that recipes of the method may set.
        arguments: `(method, batches) → arguments`: further arguments, computed
            from the recipe's settings of the method and of its batches.
        only_with: An argument of the method and its value; the sampler or
            callback is used only with that value. None: always.
    """

    what: str | Callable[..., Any]
    keys: tuple[str, ...] = ()
    arguments: Callable[[Arguments, Arguments], Arguments] = lambda m, b: {}
    only_with: tuple[str, Any] | None = None

    def arguments_for(self, method: Arguments, batches: Arguments) -> Arguments:
        """Its arguments, apart from data and seed."""
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
    """What is specific to a method.

    Attributes:
        part: The method's name for a part of the embedding.
        figures: Figures and report sections of its runs in addition to those
            of every run: names in `keras_dml.visualization`, or functions `run
            → figure`, whose docstrings are the captions. A figure is omitted
            if a run has no data for it. "attention_overlays" also lets the
            explorer show which regions the parts attend to.
        options: Recipe keys, with their defaults, that determine how the
            method is trained but are not arguments of the factory.
        sampler: The sampler of its batches; `ClassBalanced` if None.
        callbacks: The callbacks that its training requires.
        two_views: `method → sentence`: why, with these arguments, a batch must
            hold two views of every image; None if it need not.
        checks: For an argument, `(value, method) → None`, which raises
            `ValueError` if the value does not fit the other arguments.
        check_labels: `(method, labels, images per class in a batch) → None`,
            which warns if the training set is not sufficient.
        left_out: `method → keys`: arguments of the factory that, with these
            other arguments, are only for the sampler or a callback.
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
        """The sampler and the callbacks that the method declares."""
        return [x for x in (self.sampler, *self.callbacks) if x is not None]

    @property
    def extra_keys(self) -> set[str]:
        """Recipe keys that are not arguments of the factory."""
        return {*self.options, *(key for x in self.uses for key in x.keys)}


def declare(
    name: str,
    definition: str,
    traits: Traits | None = None,
    examples: Mapping[str, Any] | None = None,
) -> Callable[[Factory], Factory]:
    """Returns a decorator that registers a factory as a method.

    The method is then available in recipes, the tables of the docs, reports
    and `keras_dml.methods`. Its recipe section has the arguments of the
    factory, with their types, ranges and defaults, which are also checked in
    direct calls; its paper is the first under "Reference:" in the
    docstring.

    Args:
        name: The method's name in recipes and messages.
        definition: A one-line definition of the method.
        traits: What is specific to the method, if anything.
        examples: Arguments for a small network, other than the defaults, with
            which the tests of all methods build and train it.

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
    register = METHODS.register(
        name, definition, traits=traits or Traits(), examples=examples or {}
    )
    return lambda factory: register(check_arguments(factory))  # type: ignore[return-value]


def find(name: str) -> tuple[Callable[..., MetricModel], Traits]:
    """Returns the factory and the traits of a method.

    Args:
        name: A name in `METHODS`, or "package.module:function" for a factory
            outside this package, declared or not. Its module is imported.

    Raises:
        ValueError: If there is no method with this name.
    """
    if ":" not in name:
        return METHODS[name].value, METHODS[name].details["traits"]
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(import_named(module), attribute)
    except ImportError as error:
        raise ValueError(
            f"The module {module!r} of the method {name!r} cannot be "
            f"imported: {error}. Install it, or add its folder to the "
            "environment variable PYTHONPATH."
        ) from error
    except AttributeError:
        raise ValueError(
            f"The module {module!r} must define {attribute!r}. Received: the "
            f"method {name!r}, which it does not define."
        ) from None
    parameters = (
        list(inspect.signature(factory).parameters.values())
        if callable(factory)
        else []
    )
    passes_on = inspect.Parameter.VAR_KEYWORD in [x.kind for x in parameters]
    if not passes_on or parameters[0].name != "backbone":
        raise ValueError(
            f"The method {name!r} must be a function of a backbone that "
            "passes **kwargs on to MetricModel. Received: "
            f"{factory!r}. Write, for example, `def {attribute}(backbone, *, "
            "embedding_dim: int = 128, **kwargs)`."
        )
    for entry in METHODS.values():
        if entry.value is factory:
            return factory, entry.details["traits"]
    return factory, Traits()
