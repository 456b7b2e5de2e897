"""Weights of PyTorch and Caffe checkpoints, for models of the same layout."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras import layers

CLASSIFIERS = r"^(fc|classifier|last_linear|aux\d|loss\d)\b|^loss\d[_/]"
"""Names of modules that a backbone does without."""

# Axes of PyTorch's kernels in the order that Keras has them in.
KERNEL_AXES = {
    layers.Conv2D: (2, 3, 1, 0),
    layers.Dense: (1, 0),
    # (C, 1, h, w): one filter a channel.
    layers.DepthwiseConv2D: (2, 3, 0, 1),
}


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads a backbone's weights from a file.

    Args:
        model: A backbone, for instance `googlenet()`.
        path: A `.npz` file, which holds a state dict as `load_state_dict`
            takes it, or a weights file of Keras. In PyTorch, one line makes
            the former of a checkpoint: `numpy.savez(path, **{name:
            tensor.numpy() for name, tensor in torch.load(file).items()})`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If names or shapes do not fit.
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

    Names are `module.parameter`. A module is a layer of the model, and its
    parameters are those of torchvision and timm: `weight` and `bias` of
    convolutions ((O, I, h, w), as in Caffe) and dense layers ((O, I));
    `weight`, `bias`, `running_mean` and `running_var` of batch
    normalization, whose `num_batches_tracked` is passed over. For
    `googlenet()` these are "conv1/7x7_s2.weight", "inception_3a/1x1.bias"
    (or "_" for "/"); for `bn_inception()` "inception_3a_1x1.weight",
    "inception_3a_1x1_bn.running_mean"; for `torchvision_googlenet()` those
    of torchvision, "inception3a.branch2.0.conv.weight".

    Either all weights are set, or none.

    Args:
        model: A functional model.
        state: Arrays by name.
        rename: From a module's name to that of the layer. By default "/",
            which Keras does not allow, and "." become "_".
        ignore: Regular expression of modules that may be left over.

    Raises:
        ValueError: If names are missing or left over, or if shapes differ.
    """
    names = {}
    for name in state:
        module, _, parameter = name.rpartition(".")
        names[f"{rename(module)}.{parameter}"] = name
    slots = {s.name: s for layer in model.layers for s in _slots(layer)}
    missing = [name for name in slots if name not in names]
    left_over = [
        given
        for name, given in names.items()
        if name not in slots
        and not name.endswith("num_batches_tracked")
        and not re.search(ignore, given)
    ]
    if missing or left_over:
        raise ValueError(
            f"`state` must have the weights of {model.name!r}, no more and "
            f"no fewer. Received: missing {_some(missing)}, left over "
            f"{_some(left_over)}. Use `rename` for other names, `ignore` "
            "for modules that the model does without."
        )
    values = {
        name: slot.fit(np.asarray(state[names[name]]))
        for name, slot in slots.items()
    }
    for name, value in values.items():
        slots[name].variable.assign(value)


class _Slot(NamedTuple):
    """A weight, its name in a state dict, and how its axes move."""

    variable: keras.Variable
    name: str
    axes: tuple[int, ...]

    def fit(self, given: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fits = given.ndim == len(self.axes)
        value = given.transpose(self.axes) if fits else given
        if value.shape != tuple(self.variable.shape):
            raise ValueError(
                f"`state[{self.name!r}]` must fit its layer. Received: "
                f"shape {given.shape}, for a weight of shape "
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
            "A state dict can be loaded into convolutions, dense layers and "
            f"batch normalization. Received: layer {layer.name!r}, a "
            f"{type(layer).__name__}."
        )
    else:
        return
    for name, variable in weights.items():
        if variable is not None:
            rank_axes = axes if len(variable.shape) > 1 else (0,)
            yield _Slot(variable, f"{layer.name}.{name}", rank_axes)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{names[:5]}{more}"
