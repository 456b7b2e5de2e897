"""Generated inputs, on which any model can be tried."""

from typing import Any

import keras
import numpy as np

_LENGTH = 8
"""Length of axes whose length is not fixed."""


def takes_images(model: keras.Model) -> bool:
    """Whether a model's input is one batch of gray or RGB images."""
    shape: Any = getattr(model, "input_shape", None)
    return isinstance(shape, tuple) and len(shape) == 4 and shape[3] in (1, 3)


def input_specs(model: keras.Model) -> Any:
    """Symbolic inputs of a model, in its structure; `ValueError` if unknown."""
    # The backbone of a MetricModel has them.
    network = getattr(model, "backbone", model)
    try:
        if isinstance(network, keras.Sequential):
            return network.inputs[0]
        return network.input
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            "`model` must have known inputs. Received: "
            f"{model!r}, which raises: {error}. Use a functional or "
            "sequential "
            "model: keras.Model(inputs, model(inputs))."
        ) from None


def generated_inputs(model: keras.Model) -> Any:
    """Two examples that a model accepts, always the same.

    Floats are drawn from a normal distribution, integers are 0 and 1, which
    are in every vocabulary, and strings are letters.
    """
    rng = np.random.default_rng(0)

    def generate(spec: Any) -> Any:
        shape = (2, *(_LENGTH if n is None else n for n in spec.shape[1:]))
        dtype = keras.backend.standardize_dtype(spec.dtype)
        if dtype == "string":
            letters = rng.choice(["a", "b", "c d"], size=shape)
            return np.array(letters.tolist(), object)
        if "int" in dtype or dtype == "bool":
            # Never all 0, which may be padding.
            ones = np.ones(shape, dtype)
            ones[1, ..., 1::2] = 0
            return ones
        return rng.normal(size=shape).astype(dtype)

    return keras.tree.map_structure(generate, input_specs(model))
