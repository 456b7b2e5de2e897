"""Head of DiVA: one embedding a task, weighted into a whole."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_dml.losses.distances import l2_normalize
from keras_dml.model.head import Head
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shape, Tensor


@register
class TaskHead(Head):
    """Pooled features → one `Dense` and one unit embedding for each task.

    The whole embedding is concat(w_t · unit embedding of task t), made
    unit. Weights enter a squared distance as w².

    Args:
        tasks: Names of the K tasks, all different.
        task_dim: Dimensions of each task's embedding, d.
        test_weights: w, one for each task. None: all 1.
        **kwargs: As for `Head`.

    Call arguments:
        features: (B, h, w, C) or (B, C).

    Returns:
        `{"embedding": (B, K·d), "parts": (B, K, d)}`: unit embedding and
        unit embeddings of the tasks, float32.

    Raises:
        ValueError: If `test_weights` are not K numbers, at least 0 and
            not all 0.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        task_dim: int,
        test_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tasks = tuple(tasks)
        self.task_dim = task_dim
        self.test_weights = tuple(test_weights or [1.0] * len(self.tasks))
        fits = len(self.test_weights) == len(self.tasks)
        if not fits or min(self.test_weights) < 0 or not any(self.test_weights):
            raise ValueError(
                "`test_weights` of diva must hold one number of at least 0 "
                f"for each of its tasks, {self.tasks}, and not only zeros. "
                f"Received: test_weights={test_weights!r}."
            )
        self.heads = [
            keras.layers.Dense(task_dim, dtype=self.dtype_policy, name=name)
            for name in self.tasks
        ]

    def build(self, features_shape: Shape) -> None:
        for head in self.heads:
            head.build((None, features_shape[-1]))

    def embed(self, pooled: Tensor) -> dict[str, Tensor]:
        parts = ops.stack([head(pooled) for head in self.heads], axis=1)
        parts = l2_normalize(parts)  # (B, K, d)
        weights = ops.convert_to_tensor(self.test_weights, dtype="float32")
        weighted = weights[:, None] * parts
        width = len(self.tasks) * self.task_dim
        embedding = l2_normalize(ops.reshape(weighted, (-1, width)))
        return {"embedding": embedding, "parts": parts}

    def compute_output_shape(self, features_shape: Shape) -> dict[str, Shape]:
        batch, count = features_shape[0], len(self.tasks)
        return {
            "embedding": (batch, count * self.task_dim),
            "parts": (batch, count, self.task_dim),
        }
