"""Networks by name: of this package, and of `keras.applications`."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import keras

from keras_dml.utils.registry import Registry
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor

Network = TypeVar("Network", bound=Callable[..., keras.Model])

BACKBONES: Registry[Callable[..., keras.Model]] = Registry("backbone")
"""All networks of this package, by their names for `get`."""


def network(
    name: str,
    definition: str,
    *,
    has_weights: bool = False,
    branches: tuple[str, str] | None = None,
) -> Callable[[Network], Network]:
    """A decorator that registers a function of `input_shape` as a backbone.

    Args:
        name: The name for `get` and recipes, which is also the model's name.
        definition: A description in one line.
        has_weights: Whether there are published weights for
            `convert.load_weights`.
        branches: The layers after which an ensemble of heads branches off and
            its attention ends; see `methods.abe`.
    """
    register: Any = BACKBONES.register(
        name, definition, has_weights=has_weights, branches=branches
    )
    return register


def with_weights() -> tuple[str, ...]:
    """Networks of this package that have published weights."""
    return tuple(x for x, e in BACKBONES.items() if e.details["has_weights"])


def known_branches() -> dict[str, tuple[str, str]]:
    """Where ensembles branch off, by name of the backbone."""
    branches = {x: e.details["branches"] for x, e in BACKBONES.items()}
    return BRANCHES | {x: b for x, b in branches.items() if b}


BRANCHES = {"resnet50": ("conv3_block4_out", "conv4_block6_out")}
"""See `branches` of `network`; by name of the network."""


def family_of(name: str) -> str:
    """The module of `keras.applications` that contains a network.

    It has the `preprocess_input` that the network's weights expect.
    """
    for family, module in vars(keras.applications).items():
        if isinstance(module, ModuleType) and hasattr(module, name):
            return family
    # This is the only family whose module does not contain its networks.
    return "mobilenet_v3"


def applications() -> dict[str, str]:
    """Lower-case name → name of the constructor in `keras.applications`."""
    names = dir(keras.applications)
    return {name.lower(): name for name in names if name[0].isupper()}


@register
class ApplicationsPreprocessing(SerializableLayer):
    """The `preprocess_input` of a family of `keras.applications`.

    Args:
        family: Module of `keras.applications`, for instance "resnet".
        **kwargs: Passed to `keras.layers.Layer`.
    """

    def __init__(self, family: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.family = family

    def call(self, images: Tensor) -> Tensor:
        module = getattr(keras.applications, self.family)
        preprocess: Callable[..., Tensor] = module.preprocess_input
        return preprocess(images, data_format="channels_last")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


def application(
    name: str,
    input_shape: tuple[int, int, int] | None,
    weights: str | None,
) -> keras.Model:
    """A network of `keras.applications` without its classifier; see `get`."""
    constructor = applications()[name]
    family = family_of(constructor)
    inputs = keras.Input(input_shape or (224, 224, 3), name="image")
    x = ApplicationsPreprocessing(family, name="preprocessing")(inputs)
    network = getattr(keras.applications, constructor)
    try:
        body = network(include_top=False, weights=weights, input_tensor=x)
    except Exception as error:
        # Keras has no class for a download that failed.
        if type(error) is not Exception and not isinstance(error, OSError):
            raise
        raise ConnectionError(
            f"`weights` of the backbone {name!r} cannot be loaded: {error}. "
            f"Received: weights={weights!r}. Without internet, copy Keras' "
            "folder ~/.keras/models from a machine that has downloaded them, "
            "name a .keras file as the backbone, or use weights=None "
            "(`backbone.weights: null` in a recipe) for random weights."
        ) from error
    return keras.Model(inputs, body.output, name=name)
