"""Loading PyTorch and Caffe checkpoints into models of the same layout."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras import layers

CLASSIFIERS = r"^(fc|classifier|last_linear|aux\d|loss\d)\b|^loss\d[_/]"
"""Names of modules that a backbone does not need."""

# Axes of PyTorch's kernels in the order of Keras.
KERNEL_AXES = {
    layers.Conv2D: (2, 3, 1, 0),
    layers.Dense: (1, 0),
    # (C, 1, h, w): one filter per channel.
    layers.DepthwiseConv2D: (2, 3, 0, 1),
}


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads a backbone's weights from a file.

    Args:
        model: A backbone, for instance `googlenet()`.
        path: A Keras weights file, or a `.npz` file with a state dict for
            `load_state_dict`. In PyTorch, one line converts a checkpoint to the
            latter: `numpy.savez(path, **{name: tensor.numpy() for name, tensor
            in torch.load(file).items()})`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If names or shapes do not match.
    """
    if os.fspath(path).endswith(".npz"):
        with np.load(path) as state:
            load_state_dict(model, state)
    elif os.path.exists(path):
        model.load_weights(path)
    else:
        raise FileNotFoundError(
            f"`weights` names a file that does not exist: {os.fspath(path)!r}."
        )


def load_state_dict(
    model: keras.Model,
    state: Mapping[str, npt.ArrayLike],
    rename: Callable[[str], str] = lambda module: re.sub("[./]", "_", module),
    ignore: str = CLASSIFIERS,
) -> None:
    """Sets a model's weights from a state dict in PyTorch's layout.

    Names are `module.parameter`. A module corresponds to a layer of the model,
    and its parameters are those of torchvision and timm: `weight` and `bias` of
    convolutions ((O, I, h, w), as in Caffe) and dense layers ((O, I));
    `weight`, `bias`, `running_mean` and `running_var` of batch
    normalization, whose `num_batches_tracked` is ignored. For
    `googlenet()` these are "conv1/7x7_s2.weight", "inception_3a/1x1.bias"
    (or "_" for "/"); for `bn_inception()` "inception_3a_1x1.weight",
    "inception_3a_1x1_bn.running_mean"; for `torchvision_googlenet()` those
    of torchvision, "inception3a.branch2.0.conv.weight".

    Either all weights are set or none.

    Args:
        model: A functional model.
        state: Arrays by name.
        rename: Returns the name of the layer for that of a module. By default,
            "." and "/", which Keras does not allow, become "_".
        ignore: Regular expression for modules that may be unused.

    Raises:
        ValueError: If names are missing or unused, or if shapes differ.
    """
    names = {}
    for name in state:
        module, _, parameter = name.rpartition(".")
        names[f"{rename(module)}.{parameter}"] = name
    slots = {s.name: s for layer in model.layers for s in _slots(layer)}
    missing = [name for name in slots if name not in names]
    left_over = [
        original
        for name, original in names.items()
        if name not in slots
        and not name.endswith("num_batches_tracked")
        and not re.search(ignore, original)
    ]
    if missing or left_over:
        raise ValueError(
            f"`state` must have the weights of {model.name!r}, no more and "
            f"no fewer. Received: missing {_abbreviate(missing)}, unused "
            f"{_abbreviate(left_over)}. Use `rename` for other names, `ignore` "
            "for modules that the model does not need."
        )
    values = {
        name: slot.fit(np.asarray(state[names[name]]))
        for name, slot in slots.items()
    }
    for name, value in values.items():
        slots[name].variable.assign(value)


class _Slot(NamedTuple):
    """A weight, its name in a state dict, and the permutation of its axes."""

    variable: keras.Variable
    name: str
    axes: tuple[int, ...]

    def fit(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fits = array.ndim == len(self.axes)
        value = array.transpose(self.axes) if fits else array
        if value.shape != tuple(self.variable.shape):
            raise ValueError(
                f"`state[{self.name!r}]` must have the shape of its weight. "
                f"Received: shape {array.shape} for a weight of shape "
                f"{tuple(self.variable.shape)}."
            )
        return value


def _slots(layer: Any) -> Iterator[_Slot]:
    if isinstance(layer, layers.BatchNormalization):
        axes: tuple[int, ...] = (0,)
        weights = {
            "weight": layer.gamma,
            "bias": layer.beta,
            "running_mean": layer.moving_mean,
            "running_var": layer.moving_variance,
        }
    elif type(layer) in KERNEL_AXES:
        axes = KERNEL_AXES[type(layer)]
        weights = {"weight": layer.kernel, "bias": layer.bias}
    elif layer.weights:
        raise ValueError(
            "State dicts can only be loaded into convolutions, dense layers "
            f"and batch normalization. Received: layer {layer.name!r} of type "
            f"{type(layer).__name__}."
        )
    else:
        return
    for name, variable in weights.items():
        if variable is not None:
            rank_axes = axes if len(variable.shape) > 1 else (0,)
            yield _Slot(variable, f"{layer.name}.{name}", rank_axes)


def _abbreviate(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{names[:5]}{more}"
