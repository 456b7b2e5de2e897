"""Accumulation: the gradient of a large batch, embedded in several parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras

from keras_dml.data.feature_set import FEATURES, features_key
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor, Tensors


class WholeBatch:
    """A batch of inputs, (N, …) or a dict, that is embedded in one pass."""

    def __init__(self, embed: Callable[[Any], Tensors], x: Any) -> None:
        self._embed = embed
        self._x = x

    def outputs(self, tape: tf.GradientTape) -> Tensors:
        return self._embed(self._x)

    def gradients(
        self,
        tape: tf.GradientTape,
        loss: Tensor,
        variables: list[keras.Variable],
    ) -> list[Tensor | None]:
        gradients: list[Tensor | None] = tape.gradient(loss, variables)
        return gradients


class PartsOfBatch(WholeBatch):
    """A batch that is embedded in parts, with the gradient of the whole.

    First, all parts are embedded and only their outputs are kept; the loss of
    the whole batch is computed from these. Then each part is embedded again,
    with the same dropout masks, and the gradient of the loss with respect to
    its outputs is propagated back through it. The sum is the gradient of the
    whole batch, for the memory of one part and the time of one additional
    forward pass.

    All parts have the same number of rows, n, as compilers require: if n does
    not divide the batch, the last part begins with rows of the previous part,
    which it does not count. A batch of fewer than K rows has one part per row.

    `weights` are the variables that the embedding depends on, and `states`
    those that it changes, such as the states of random generators.

    Reference:
        Gao et al., "Scaling Deep Contrastive Learning Batch Size under
        Memory Limited Setup", RepL4NLP 2021, Section 3.
    """

    def __init__(
        self,
        embed: Callable[[Any], Tensors],
        x: Any,
        parts: int,
        weights: list[keras.Variable],
        states: list[keras.Variable],
    ) -> None:
        super().__init__(embed, x)
        self._weights = weights
        self._states = states
        self._size = _rows_of(x)
        self._part_size = -(-self._size // parts)
        self._parts = -(-self._size // self._part_size)
        self._outputs: Any = None

    def outputs(self, tape: tf.GradientTape) -> Tensors:
        with tape.stop_recording():
            before = [tf.identity(v) for v in self._states]
            self._outputs = self._joined_outputs()
            for variable, value in zip(self._states, before, strict=True):
                variable.assign(value)
        tape.watch(self._outputs)
        outputs: Tensors = self._outputs
        return outputs

    def _joined_outputs(self) -> Tensors:
        # All outputs have the structure of the first part's.
        first = self._embed_part(tf.constant(0))
        arrays = [
            tf.TensorArray(x.dtype, self._parts, element_shape=x.shape).write(
                0, x
            )
            for x in keras.tree.flatten(first)
        ]

        def body(part: Tensor, arrays: list[Any]) -> tuple[Any, ...]:
            flat = keras.tree.flatten(self._embed_part(part))
            return part + 1, [
                array.write(part, x)
                for array, x in zip(arrays, flat, strict=True)
            ]

        arrays = self._loop(body, arrays, first=1)
        before, repeated = self._repeated_rows()

        def whole(x: Tensor) -> Tensor:
            rows = tf.concat([x[:before], x[before + repeated :]], axis=0)
            rows.set_shape((_static_size(self._size), *x.shape[1:]))
            return rows

        outputs: Tensors = keras.tree.pack_sequence_as(
            first, [whole(x.concat()) for x in arrays]
        )
        return outputs

    def gradients(
        self,
        tape: tf.GradientTape,
        loss: Tensor,
        variables: list[keras.Variable],
    ) -> list[Tensor | None]:
        flat = keras.tree.flatten(self._outputs)
        gradients, back = tape.gradient(loss, (variables, flat))
        before, repeated = self._repeated_rows()

        def by_part(x: Tensor) -> Tensor:
            """(K·n, …): the rows of all parts, with 0 for repeated ones."""
            zeros = tf.zeros_like(x[:repeated])
            return tf.concat([x[:before], zeros, x[before:]], axis=0)

        back = [
            by_part(tf.zeros_like(x) if dx is None else dx)
            for x, dx in zip(flat, back, strict=True)
        ]
        # Other variables, such as proxies and β, have their gradients already.
        embeds = {id(v) for v in self._weights}
        indices = [i for i, v in enumerate(variables) if id(v) in embeds]
        values = [variables[i].value for i in indices]

        def body(part: Tensor, sums: list[Tensor]) -> tuple[Any, ...]:
            with tf.GradientTape() as tape:
                outputs = self._embed_part(part)
            added = tape.gradient(
                keras.tree.flatten(outputs),
                values,
                [self._rows(x, part * self._part_size) for x in back],
                unconnected_gradients="zero",
            )
            return part + 1, [
                total + tf.convert_to_tensor(gradient)
                for total, gradient in zip(sums, added, strict=True)
            ]

        sums = [
            tf.zeros(v.shape, v.dtype)
            if gradients[i] is None
            else tf.convert_to_tensor(gradients[i])
            for i, v in zip(indices, values, strict=True)
        ]
        for i, total in zip(indices, self._loop(body, sums), strict=True):
            gradients[i] = total
        result: list[Tensor | None] = gradients
        return result

    def _loop(
        self, body: Callable[..., Any], state: Any, first: int = 0
    ) -> Any:
        _, state = tf.while_loop(
            lambda part, _: part < self._parts,
            body,
            (tf.constant(first), state),
            parallel_iterations=1,
        )
        return state

    def _embed_part(self, part: Tensor) -> Tensors:
        first = part * self._part_size
        first = tf.minimum(first, self._size - self._part_size)
        return self._embed(
            keras.tree.map_structure(lambda x: self._rows(x, first), self._x)
        )

    def _rows(self, x: Tensor, first: Tensor) -> Tensor:
        """(n, …): the rows of a part, given its first row."""
        other_axes = len(x.shape) - 1
        size = tf.stack([self._part_size, *[-1] * other_axes])
        rows = tf.slice(x, tf.stack([first, *[0] * other_axes]), size)
        rows.set_shape((_static_size(self._part_size), *x.shape[1:]))
        return rows

    def _repeated_rows(self) -> tuple[Any, Any]:
        """Rows before the last part, and how many of them it repeats."""
        before = (self._parts - 1) * self._part_size
        return before, self._parts * self._part_size - self._size


def embedding_of(model: keras.Model, x: Any) -> WholeBatch:
    """How a `MetricModel` embeds a training batch, given `accumulate`."""
    # Features of a whole backbone bypass it, so it has no gradient.
    skips = features_key(x) == FEATURES
    parts = [model.head] if skips else [model.backbone, model.head]
    replicas = tf.distribute.get_strategy().num_replicas_in_sync

    def embed(x: Any) -> Tensors:
        outputs: Tensors = model.outputs_of(x, training=True)
        if model.accumulate > 1:
            check_added_losses(parts, "accumulate", "1", "accumulate=1")
        elif model.gather == "replicas" and replicas > 1:
            check_added_losses(parts, "gather", '"none"', 'gather="none"')
        return outputs

    if model.accumulate == 1:
        return WholeBatch(embed, x)
    return PartsOfBatch(
        embed,
        x,
        model.accumulate,
        weights=[v for part in parts for v in part.trainable_variables],
        states=[v for part in parts for v in part.non_trainable_variables],
    )


def check_added_losses(
    layers: Iterable[keras.layers.Layer], argument: str, rule: str, use: str
) -> None:
    """Raises `ValueError` for a layer that adds a loss of the part it sees.

    It is unknown whether such a loss, as of an activity regularizer, is a sum
    over the batch or a mean. `argument` of the model splits the batch; `rule`
    is what it must be instead, and `use` the same as code.
    """
    for layer in layers:
        of_weights = [v for v in layer.trainable_variables if v.regularizer]
        if len(layer.losses) > len(of_weights):
            raise ValueError(
                f"`{argument}` of MetricModel must be {rule} if layers add "
                "losses of their own, because each layer sees only part of "
                "the batch. "
                f"Received: {len(layer.losses) - len(of_weights)} losses "
                f"added by layer {layer.name!r}. Remove activity regularizers "
                f"and `add_loss`, or use {use}."
            )


def _static_size(count: Any) -> int | None:
    return count if isinstance(count, int) else None


def _rows_of(x: Any) -> Any:
    """The number of rows: an integer, or a tensor where it is not known."""
    first = keras.tree.flatten(x)[0]
    return tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
