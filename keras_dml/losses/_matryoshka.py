"""Matryoshka: a loss on nested prefixes of the embedding."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_dml.losses.base import COMPOSITES, LossLike, MetricLoss
from keras_dml.losses.combined import get
from keras_dml.losses.composite import (
    LossOfParts,
    build_part,
    is_weight,
    name_terms,
    rescale,
)
from keras_dml.losses.variables import scope_of
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Count, Tensor, Tensors

_OWNER = "MatryoshkaLoss"


@COMPOSITES.register("matryoshka")
class MatryoshkaLoss(LossOfParts):
    r"""Matryoshka: any loss on nested prefixes of the embedding.

    With the first $d$ dimensions $x_{1:d}$ of each embedding, scaled to unit
    length,

    $$
    \mathcal{L} = \sum_d w_d \, \mathcal{L}_d(x_{1:d}) .
    $$

    This trains one embedding that can be truncated to its first d dimensions,
    and scaled to unit length again, for a smaller index or a quick first
    search.

    Each prefix is a term, "dim_8", "dim_16", …, which is logged under this name
    and whose weight can be replaced by `loss_weights`. Each has its own copy of
    the loss, with its own proxies, random draws of mining, and memory.

    To evaluate the prefixes, use `evaluate(..., prefixes=dims)`, or
    `evaluation: {prefixes: [...]}` in a recipe.

    When to use it:
        One model for a small and a large index.

    Labels:
        As for the given loss.

    Args:
        loss: The loss, as for `losses.get`.
        dims: Sizes d of the prefixes, in ascending order. The last one is the
            whole embedding, D, or the size of a part if the method applies its
            loss to parts.
        weights: w of each prefix, one for each of `dims`: numbers, schedules,
            or "learned". None: 1 each, as in the paper.
        normalize: Whether to scale each prefix to unit length before the loss.
        name: Name of the instance.

    Raises:
        ValueError: If `dims` are not ascending, if there are not as many
            `weights`, or if the last of `dims` is not the size of the
            embedding.

    Deviations:
        - If the loss has proxies, each prefix has its own, as in the paper's
          MRL; the shared proxies of MRL-E are not implemented.

    Also known as:
        - sentence-transformers: `MatryoshkaLoss(model, loss, matryoshka_dims,
          matryoshka_weights)`, whose dims fall, where these rise.
        - Elsewhere: MRL.

    Reference:
        Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022, Eq.
        1 (number not verified), https://arxiv.org/abs/2205.13147.

    Example:
        ```python
        loss = MatryoshkaLoss("multi_similarity", dims=(16, 32, 64, 128))
        model = keras_dml.methods.baseline(backbone, loss=loss)
        ```
    """

    def __init__(
        self,
        loss: LossLike,
        dims: Sequence[Count],
        weights: Sequence[Any] | None = None,
        normalize: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_not_empty(_OWNER, "dims", dims)
        self.dims = tuple(dims)
        if list(self.dims) != sorted(set(self.dims)):
            raise ValueError(
                f"`dims` of {_OWNER} must be ascending. Received: "
                f"dims={self.dims}. Use {tuple(sorted(set(self.dims)))}."
            )
        self.loss = get(loss)
        self.weights = None if weights is None else list(weights)
        self.normalize = normalize
        if weights is not None and (
            len(weights) != len(dims) or not all(map(is_weight, weights))
        ):
            raise ValueError(
                f"`weights` of {_OWNER} must hold a number, a schedule or "
                f'"learned" for each of the dims {self.dims}. Received: '
                f"weights={self.weights!r}."
            )
        self.term_weights  # noqa: B018  Checks them.
        self.losses: dict[int, MetricLoss] = {
            dim: self.loss.copy() for dim in self.dims
        }

    @property
    def parts(self) -> Iterable[MetricLoss]:
        return self.losses.values()

    @property
    def term_weights(self) -> dict[str, Any]:
        weights: dict[str, Any] = {}
        for dim, weight in zip(
            self.dims, self.weights or [1.0] * len(self.dims), strict=True
        ):
            inner = rescale(_OWNER, weight, self.loss.term_weights)
            weights |= name_terms(f"dim_{dim}", inner)
        return weights

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        self._check_dim(embedding_dim)
        with scope_of(owner):
            for dim, loss in self.losses.items():
                build_part(owner, f"dim_{dim}", loss, dim)

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        self._check_dim(embeddings.shape[-1])
        refs = kwargs.pop("ref_embeddings", None)
        values: Tensors = {}
        for dim, loss in self.losses.items():
            if refs is not None:
                kwargs["ref_embeddings"] = self._prefix(refs, dim)
            prefix = self._prefix(embeddings, dim)
            terms = loss.term_values(labels, prefix, **kwargs)
            values |= name_terms(f"dim_{dim}", terms)
        return values

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        for dim, loss in self.losses.items():
            loss.remember(labels, self._prefix(embeddings, dim), when)

    def _prefix(self, embeddings: Tensor, dim: int) -> Tensor:
        embeddings = keras.ops.convert_to_tensor(embeddings)
        prefix = keras.ops.cast(embeddings[:, :dim], "float32")
        return l2_normalize(prefix) if self.normalize else prefix

    def _check_dim(self, size: int) -> None:
        if size != self.dims[-1]:
            raise ValueError(
                f"`dims` of {_OWNER} must end with the size of the embedding, "
                f"{size}. Received: dims={self.dims}. Use "
                f"dims={(*(d for d in self.dims if d < size), size)}."
            )
