"""Augmentations: Keras layers and functions, as functions of a seed.

Keras layers draw from a `SeedGenerator`, a variable that is incremented with
every call. In a parallel pipeline, the order of calls is random. Here layers
are traced once with every such variable replaced by numbers that come from a
seed, so a batch depends only on its seed. Other sources of numbers are errors.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from keras_dml.data.loading import parallel
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.trust import import_named
from keras_dml.utils.types import Tensor

StepConfigs: TypeAlias = Mapping[str, Mapping[str, Any] | None]
"""Name of a layer, or package.module:function → its arguments."""

Step: TypeAlias = keras.Layer | Callable[..., Any]

Augmentations: TypeAlias = StepConfigs | Step | Sequence[Step]

AugmentBy: TypeAlias = Literal["batch", "image"]

Change: TypeAlias = Callable[[Any, Tensor], Any]
"""From a batch and a seed, (2,) int64, to a batch of the same kind."""

LAYERS = (
    "AutoContrast", "Dropout", "Equalization", "GaussianDropout",
    "GaussianNoise", "RandAugment", "RandomBrightness",
    "RandomColorDegeneration", "RandomColorJitter", "RandomContrast",
    "RandomElasticTransform", "RandomErasing", "RandomFlip",
    "RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation",
    "RandomSaturation", "RandomSharpness", "RandomShear", "RandomTranslation",
    "RandomZoom", "Solarization",
)  # fmt: skip
"""Keras layers that can be given by name, if this Keras version has them.

`MixUp` and `CutMix`, which change labels, are excluded, and so is `AugMix`,
which draws with Python's `random`.
"""

# The names of operations that ignore our seed start with these.
_UNSEEDED = (
    "Random", "Multinomial", "ParameterizedTruncatedNormal",
    "TruncatedNormal", "SampleDistortedBoundingBox", "StatefulRandom",
    "StatefulStandardNormal", "StatefulTruncatedNormal", "StatefulUniform",
    "Rng", "NonDeterministicInts",
)  # fmt: skip


def layer_names() -> dict[str, type[keras.Layer]]:
    """Layers of this Keras version by names like "random_color_jitter"."""
    return {
        re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): getattr(
            keras.layers, name
        )
        for name in LAYERS
        if hasattr(keras.layers, name)
    }


def as_steps(augment: Augmentations) -> list[Step]:
    """The layers and functions in order, from any accepted form."""
    if isinstance(augment, Mapping):
        return [_make_step(name, args or {}) for name, args in augment.items()]
    is_many = isinstance(augment, Sequence) and not isinstance(augment, str)
    steps: list[Any] = list(augment) if is_many else [augment]  # type: ignore[arg-type]
    for step in steps:
        if not callable(step):
            raise ValueError(
                "`augment` of pipeline must be a Keras layer, a function, "
                "several of them, or a mapping {name: arguments}. Received: "
                f"{step!r}. Use, for example, "
                "keras.layers.RandomColorJitter(brightness_factor=0.2)."
            )
    return steps


def _make_step(name: str, arguments: Mapping[str, Any]) -> Step:
    if ":" in name:
        return functools.partial(_import_function(name), **arguments)
    layers = layer_names()
    if name not in layers:
        raise ValueError(
            f"`augment` of pipeline must name Keras layers, "
            f"{', '.join(layers)}, or a function as package.module:function. "
            f"Received: {name!r}.{did_you_mean(name, layers)}"
        )
    layer = layers[name]
    # In Python 3.11.2, a class has the signature of `Operation.__new__`.
    parameters = inspect.signature(layer.__init__).parameters
    allowed = [x for x in parameters if x not in ("self", "seed", "kwargs")]
    odd = [x for x in arguments if x not in allowed]
    if odd:
        raise ValueError(
            f"`augment` of pipeline has no argument {odd[0]!r} for {name!r}, "
            f"only {', '.join(allowed)}. Received: {name}="
            f"{dict(arguments)!r}.{did_you_mean(odd[0], allowed)} Numbers "
            "are drawn from the seed of the pipeline."
        )
    try:
        return layer(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"`augment` of pipeline must have arguments that {name!r} accepts. "
            f"Received: {name}={dict(arguments)!r}. {error}"
        ) from error


def _import_function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        function: Callable[..., Any] = getattr(import_named(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"`augment` of pipeline must name a function that can be imported. "
            f"Received: {name!r}: {error}. Is its folder in PYTHONPATH?"
        ) from error
    return function


def make_change(augment: Augmentations, example: Any, by: AugmentBy) -> Change:
    """Makes augmentations a function of a batch and a seed, in any graph.

    For the arguments, see `pipeline`; `example` is the `tf.TensorSpec` of an
    example, or a dict of specs. A `ValueError` is raised if augmentations do
    not accept it, return something else, or draw from anything but the seed.
    """
    steps = as_steps(augment)
    spec, seed = example, tf.TensorSpec((2,), "int64")
    if by == "batch":
        spec = tf.nest.map_structure(
            lambda x: tf.TensorSpec((None, *x.shape), x.dtype), example
        )

    def apply(x: Any, seed: Tensor) -> Any:
        for number, step in enumerate(steps):
            x = _apply(step, x, fold_in(seed, number))
        return x

    # The variables that layers change are recorded in that order.
    with _Recorder() as recorder:
        _trace(apply, spec, seed)
    generators = recorder.generators()

    def apply_stateless(x: Any, seed: Tensor) -> Any:
        states = tf.random.stateless_uniform(
            (len(generators), 2),
            fold_in(seed, len(steps)),
            minval=0,
            maxval=2**31 - 1,
            dtype="int32",
            alg="philox",
        )
        pairs = list(zip(generators, tf.unstack(states), strict=True))
        with keras.StatelessScope(pairs):
            return apply(x, seed)

    before = _python_states()
    function = _trace(apply_stateless, spec, seed)
    _check_seeded(function, _python_states() != before)
    if by == "batch":
        return function

    def apply_each(x: Any, seed: Tensor) -> Any:
        count = tf.shape(tf.nest.flatten(x)[0])[0]
        seeds = tf.random.split(seed, count, alg="philox")
        return tf.map_fn(
            lambda x: function(*x), (x, seeds), fn_output_signature=example
        )

    return apply_each


def augment_batches(
    batches: tf.data.Dataset,
    change: Change,
    num_views: int,
    seed: int,
    steps: tf.Tensor,
) -> tf.data.Dataset:
    """Batches of x, or of {name: view}, each changed with its own seed.

    `steps`, (S,), are the numbers of the batches.
    """

    def change_views(x: Any, step: tf.Tensor) -> Any:
        key = tf.stack([tf.constant(seed, tf.int64), step])

        def one(view: Any, number: int) -> Any:
            return tf.nest.map_structure(
                lambda new, old: tf.ensure_shape(new, old.shape),
                change(view, fold_in(key, number)),
                view,
            )

        if num_views == 1:
            return one(x, 0)
        return {name: one(x[name], i) for i, name in enumerate(x)}

    numbered = tf.data.Dataset.from_tensor_slices(steps)
    return parallel(tf.data.Dataset.zip(batches, numbered), change_views)


def _apply(step: Step, x: Any, seed: Tensor) -> Any:
    try:
        result = _call(step, x, seed)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`augment` of pipeline must accept {_describe(x)}. Received: "
            f"{step!r}, which fails: {error} Use a function to choose what is "
            "changed, and how; for a dict, for example, "
            'lambda x: {**x, "name": layer(x["name"])}.'
        ) from error
    if not _are_alike(result, x):
        raise ValueError(
            "`augment` of pipeline must return the shape and type that it "
            f"takes: {_describe(x)}. Received: {_describe(result)} from "
            f"{step!r}."
        )
    return tf.nest.map_structure(
        lambda new, old: tf.ensure_shape(tf.cast(new, old.dtype), old.shape),
        result,
        x,
    )


def _call(step: Step, x: Any, seed: Tensor) -> Any:
    if isinstance(step, keras.Layer):
        takes_mode = "training" in inspect.signature(step.call).parameters
        return step(x, **({"training": True} if takes_mode else {}))
    try:
        takes_seed = "seed" in inspect.signature(step).parameters
    except (TypeError, ValueError):
        takes_seed = False  # A function in C may have no signature.
    # AutoGraph must convert it anew each time, because its use of seeds
    # depends on the scope.
    function = tf.function(step)
    return function(x, **({"seed": seed} if takes_seed else {}))


def _are_alike(result: Any, x: Any) -> bool:
    """Whether shapes and types are equal, or numbers can be cast to floats."""
    if isinstance(x, dict):
        return (
            isinstance(result, dict)
            and result.keys() == x.keys()
            and all(_are_alike(result[name], x[name]) for name in x)
        )
    if not hasattr(result, "shape"):
        return False
    is_cast = x.dtype.is_floating and result.dtype != tf.string
    is_type = is_cast or result.dtype == x.dtype
    return is_type and x.shape.is_compatible_with(result.shape)


def _describe(x: Any) -> str:
    if isinstance(x, dict):
        each = (f"{name!r}: {_describe(value)}" for name, value in x.items())
        return "{" + ", ".join(each) + "}"
    if not hasattr(x, "shape"):
        return repr(x)
    return f"{x.dtype.name} {tuple(x.shape)}"


class _Recorder(keras.StatelessScope):
    def __init__(self) -> None:
        super().__init__()
        self.updated: list[keras.Variable] = []

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        super().add_update(update)
        variable, _ = update
        if not any(variable is x for x in self.updated):
            self.updated.append(variable)

    def generators(self) -> list[keras.Variable]:
        """The variables that changed, if all are states of seed generators."""
        for variable in self.updated:
            if not variable.path.endswith("seed_generator_state"):
                raise ValueError(
                    "`augment` of pipeline must not change variables, because "
                    "batches are computed in no fixed order. Received: a layer "
                    f"that changes {variable.path!r}."
                )
        return self.updated


def _trace(
    function: Callable[..., Tensor], *signature: tf.TensorSpec
) -> Callable[..., Tensor]:
    return tf.function(function, autograph=False).get_concrete_function(
        *signature
    )


def _python_states() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state()))


def _check_seeded(function: Any, draws_in_python: bool) -> None:
    """Rejects random numbers drawn from states that are not ours."""
    graph = function.graph.as_graph_def()
    nodes = [
        *graph.node,
        *(x for f in graph.library.function for x in f.node_def),
    ]
    unseeded = sorted({x.op for x in nodes if x.op.startswith(_UNSEEDED)})
    # Python draws only while the graph is traced, so all batches are alike.
    unseeded += ["`random` or `numpy.random`"] * draws_in_python
    if unseeded:
        raise ValueError(
            "`augment` of pipeline must draw its random numbers from its "
            f"seed. Received: {', '.join(unseeded)}, which draw from other "
            "sources, so no run could be reproduced. Take an argument `seed`, "
            "and use tf.random.stateless_uniform(shape, seed), "
            "tf.image.stateless_random_brightness and similar functions, or "
            "keras.random and keras.layers."
        )


def fold_in(seed: Tensor, number: int) -> Tensor:
    """A different seed for each number, (2,) int64."""
    folded = tf.random.experimental.stateless_fold_in(
        seed, number, alg="philox"
    )
    return tf.cast(folded, "int64")
