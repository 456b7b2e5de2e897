"""Accumulation: the gradient of a large batch, embedded a part at a time."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_dml.utils.types import Tensor, Tensors


class WholeBatch:
    """A batch that is embedded at once.

    Args:
        embed: From inputs to outputs, as in training.
        x: Inputs, (N, …), or a dict of these.
    """

    def __init__(self, embed: Callable[[Any], Tensors], x: Any) -> None:
        self._embed = embed
        self._x = x

    def outputs(self, tape: tf.GradientTape) -> Tensors:
        """The outputs, (N, …)."""
        return self._embed(self._x)

    def gradients(
        self,
        tape: tf.GradientTape,
        loss: Tensor,
        variables: list[keras.Variable],
    ) -> list[Tensor | None]:
        """The gradient of a loss that was computed from the outputs."""
        found: list[Tensor | None] = tape.gradient(loss, variables)
        return found


class PartsOfBatch(WholeBatch):
    """A batch that is embedded in parts, with the gradient of the whole.

    First all parts are embedded, and only their outputs kept, on which the
    loss of the whole batch is computed. Then each part is embedded again, by
    the same draws of dropout, and the loss's gradient with respect to its
    outputs goes back through it. The sum is the gradient of the whole batch,
    at the memory of a part and the time of one more forward pass.

    Args:
        embed: As for `WholeBatch`.
        x: As for `WholeBatch`.
        parts: Number of parts, K.
        states: Variables that embedding changes, such as the states of
            random generators.

    Reference:
        Gao et al., "Scaling Deep Contrastive Learning Batch Size under
        Memory Limited Setup", RepL4NLP 2021, Section 3.
    """

    def __init__(
        self,
        embed: Callable[[Any], Tensors],
        x: Any,
        parts: int,
        states: list[keras.Variable],
    ) -> None:
        super().__init__(embed, x)
        self._parts = parts
        self._states = states
        self._size = tf.shape(keras.tree.flatten(x)[0], tf.int64)[0]
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
        # What the first part gives says what all do.
        first = self._embed(self._rows(self._x, tf.constant(0)))
        arrays = [
            tf.TensorArray(
                x.dtype,
                self._parts,
                infer_shape=False,
                element_shape=(None, *x.shape[1:]),
            ).write(0, x)
            for x in keras.tree.flatten(first)
        ]

        def body(part: Tensor, arrays: list[Any]) -> tuple[Any, ...]:
            flat = keras.tree.flatten(self._embed(self._rows(self._x, part)))
            return part + 1, [
                array.write(part, x)
                for array, x in zip(arrays, flat, strict=True)
            ]

        arrays = self._loop(body, arrays, first=1)
        size = keras.tree.flatten(self._x)[0].shape[0]
        joined = [array.concat() for array in arrays]
        for x in joined:
            x.set_shape((size, *x.shape[1:]))
        outputs: Tensors = keras.tree.pack_sequence_as(first, joined)
        return outputs

    def gradients(
        self,
        tape: tf.GradientTape,
        loss: Tensor,
        variables: list[keras.Variable],
    ) -> list[Tensor | None]:
        flat = keras.tree.flatten(self._outputs)
        own, back = tape.gradient(loss, (variables, flat))
        back = [
            tf.zeros_like(x) if gradient is None else gradient
            for x, gradient in zip(flat, back, strict=True)
        ]
        values = [v.value for v in variables]

        def body(part: Tensor, sums: list[Tensor]) -> tuple[Any, ...]:
            with tf.GradientTape() as tape:
                outputs = self._embed(self._rows(self._x, part))
            found = tape.gradient(
                keras.tree.flatten(outputs),
                values,
                self._rows(back, part),
                unconnected_gradients="zero",
            )
            return part + 1, [
                total + tf.convert_to_tensor(gradient)
                for total, gradient in zip(sums, found, strict=True)
            ]

        sums = [
            tf.zeros(v.shape, v.dtype) if x is None else tf.convert_to_tensor(x)
            for v, x in zip(variables, own, strict=True)
        ]
        total: list[Tensor | None] = self._loop(body, sums)
        return total

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

    def _rows(self, structure: Any, part: Tensor) -> Any:
        part = tf.cast(part, tf.int64)
        first = part * self._size // self._parts
        last = (part + 1) * self._size // self._parts
        return keras.tree.map_structure(lambda x: x[first:last], structure)
