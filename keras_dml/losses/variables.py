"""Variables that belong to a loss, and checks of class ids."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
from keras import ops

from keras_dml.losses.labels import values_of
from keras_dml.utils.gradients import custom_gradient
from keras_dml.utils.types import Shape, Tensor


def add_loss_variable(
    owner: keras.layers.Layer,
    name: str,
    shape: Shape,
    initializer: Any,
    **kwargs: Any,
) -> keras.Variable:
    """Adds a variable of a loss, with the path `{owner's}/loss/{name}`.

    Models recognize the variables of their losses by "/loss/" in the path:
    their learning rate can be set together, and they have no weight decay.

    Args:
        owner: The layer to which the variable will belong, through its child
            `owner.loss_variables`.
        name: Name of the variable.
        shape: Shape of the variable.
        initializer, **kwargs: As for `Layer.add_weight`.
    """
    if not hasattr(owner, "loss_variables"):
        owner.loss_variables = keras.layers.Layer(name="loss", dtype="float32")
        owner.loss_variables.built = True
    with scope_of(owner):
        return owner.loss_variables.add_weight(
            shape=shape,
            initializer=initializer,
            dtype="float32",
            autocast=False,
            name=name,
            **kwargs,
        )


def scope_of(owner: keras.layers.Layer) -> AbstractContextManager[Any]:
    """The scope in which an owner's variables get their names.

    Keras names a variable after the layers that are being built. An owner
    that is not being built is entered here.
    """
    is_building = owner.path is not None
    return nullcontext() if is_building else keras.name_scope(owner.name)


def not_built_error(owner: str, code: str) -> RuntimeError:
    """The error of a loss, written as `code`, that would not be trained."""
    return RuntimeError(
        f"{owner} owns variables, and was called before they were created, so "
        "they would not be trained. A loss passed to `compile` cannot own "
        f"variables:\n\n    model.compile(optimizer, loss={code})  # not "
        "trained\n\nPass it to a method instead:\n\n    model = "
        "keras_dml.methods.baseline(\n        backbone, "
        f"loss=keras_dml.losses.{code}\n    )\n    "
        "model.compile(optimizer)\n\nIf your own objective calls the loss, "
        "derive it from `keras_dml.LossObjective` and call "
        "`super().build(outputs_shape)` in its `build`. In any other layer, "
        "call `loss.build(self, embedding_dim)` in `build`."
    )


def check_not_built(owner: str, is_built: bool) -> None:
    """Raises `RuntimeError` if the variables of a loss exist already."""
    if is_built:
        raise RuntimeError(
            f"The variables of this {owner} already belong to a layer, which "
            "would lose them if the loss were built again. Use a separate loss "
            "for every model: `loss.copy()`."
        )


def check_class_ids(owner: str, labels: Tensor, num_classes: int) -> None:
    """Raises `ValueError` for class ids outside [0, num_classes).

    Inside a compiled graph there are no values to look at and nothing is
    checked: there `nan_outside` marks such examples.
    """
    if len(labels.shape) != 1:
        raise ValueError(
            f"`labels` of {owner} must be class ids, because a relation matrix "
            "does not contain the class of each example. Received: labels of "
            f"shape {tuple(labels.shape)}. Use (B,) class ids."
        )
    ids = values_of(labels)
    if ids is None:
        return
    outside = ids[(ids < 0) | (ids >= num_classes)]
    if outside.size:
        raise ValueError(
            f"`labels` of {owner} must be class ids in [0, num_classes). "
            f"Received: num_classes={num_classes} and a label {outside[0]}. "
            "Number the training classes 0, 1, 2, …, or raise num_classes."
        )


def nan_outside(values: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(B,) values, with NaN for examples of unknown class.

    Not every backend can raise an error in a compiled graph, and a clipped id
    would silently train another class.
    """
    is_known = ops.logical_and(labels >= 0, labels < num_classes)
    return ops.where(is_known, values, float("nan"))


def take_rows(table: Tensor, labels: Tensor) -> Tensor:
    """Rows of a table by class id; ids outside it read some valid row.

    The caller marks those with `nan_outside`.
    """
    ids = ops.cast(ops.clip(labels, 0, table.shape[0] - 1), "int32")
    # JAX's own gradient adds rows up; a custom one cannot be in a branch.
    if keras.backend.backend() == "jax":
        return ops.take(table, ids, axis=0)

    @custom_gradient
    def take(table: Tensor) -> Any:
        def gradient(upstream: Tensor) -> Tensor:
            # TensorFlow's own has a slice per example, and the optimizers of
            # Keras square these before they add those of the same class.
            return ops.segment_sum(upstream, ids, table.shape[0])

        return ops.take(table, ids, axis=0), gradient

    return take(table)
