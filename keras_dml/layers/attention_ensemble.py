"""AttentionEnsemble: learners that attend to different parts of an image."""

import copy
import math
from typing import Any

import keras
from keras import layers, ops

from keras_dml.layers.pooling import FeaturePooling
from keras_dml.utils.arguments import check_divisible
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.models import ModelTemplate
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Pooling, Shape, Tensor


@register
class AttentionEnsemble(layers.Layer):
    """An ensemble of M learners B_m(x) = G(S(x) ∘ A_m(S(x))) (Eq. 7).

    S(x) is a feature map, and A_m its attention mask, with A_m(S) = A'_m(C(S))
    (Sec. 4). The context network C is shared; A'_m, a 1×1 convolution with a
    sigmoid, back to the channels of S, belongs to learner m. The global feature
    embedding G consists of `trunk`, pooling and one dense layer; it is shared
    and runs once, on all M·B masked maps. Weights that are not copied are
    initialized as proposed by Glorot.

    Variants compared in the paper (Tables 1 and 8; Fig. 8):

    - M-heads, G_m(S(x)): `attention=None, shared=False`.
    - M-heads+att, G_m(S(x) ∘ A_m(S(x))): `shared=False`.
    - M-tails, G(S_m(x)): `attention=None, stacked=True`.

    Args:
        trunk: G without its dense layer: a functional model that maps one
            feature map to features, (B, h', w', C'), (B, T, C') or (B, C'). The
            layer makes its own copies, which start from the same weights.
        attention: C: a functional model that maps the feature map to one of the
            same height and width, copied as well. None: no attention.
        embedding_dim: Total number of units of all learners, D.
        num_learners: Number of learners, M, which divides D.
        shared: Whether all learners share one G. Otherwise, each has its own.
        stacked: Whether the input holds a separate map for each learner,
            stacked along the channels, rather than one for all.
        pooling: Pooling of the output of `trunk`, as for `FeaturePooling`.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to float32,
            whatever the global policy. The layers inside `trunk` and
            `attention` keep their own.

    Attributes:
        has_attention: Whether the layer has attention masks.

    Call arguments:
        inputs: Map S(x), (B, h, w, C), or (B, h, w, M·C) if `stacked`; or
            tokens, (B, T, C) or (B, T, M·C).
        return_attention_scores: Whether to return the masks as well.

    Returns:
        (B, M, D / M) float32, the unit-length embeddings of the learners; with
        `return_attention_scores`, a pair of these and the masks,
        (B, M, h, w, C) or (B, M, T, C), from 0 to 1.

    Raises:
        ValueError: If M does not divide D, `pooling` is unknown, `attention` is
            combined with `stacked`, the masks would not fit the map, or masks
            are requested from a layer without attention.

    Deviations:
        - The paper only says that masks are "from 0 to 1"; the sigmoid is our
          choice.
        - 1×1 convolutions are dense layers on the channels, so maps of any rank
          are supported.

    Example:

    ```python
    from keras_dml.backbones import splitting

    trunk = splitting.copy_between(backbone, "pool3_3x3_s2")
    attention = splitting.without_downsampling(
        splitting.copy_between(
            backbone, "pool3_3x3_s2", "inception_4e_output"
        )
    )
    ensemble = AttentionEnsemble(trunk, attention, 512, num_learners=8)
    parts = ensemble(features)  # (B, 8, 64), each row of 64 is unit
    ```

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Sec. 3.3 and 4.
    """

    def __init__(
        self,
        trunk: keras.Model,
        attention: keras.Model | None,
        embedding_dim: int,
        num_learners: int,
        shared: bool = True,
        stacked: bool = False,
        pooling: Pooling = "avg",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        check_divisible(
            "AttentionEnsemble", embedding_dim, "`num_learners`", num_learners
        )
        if stacked and attention is not None:
            raise ValueError(
                "`attention` of AttentionEnsemble requires a single map, not "
                "`stacked` maps. Received: stacked=True, "
                f"attention={attention!r}. Use attention=None."
            )
        self.has_attention = attention is not None
        self.embedding_dim = embedding_dim
        self.num_learners = num_learners
        self.shared = shared
        self.stacked = stacked
        self.pooling = pooling
        self._trunk = ModelTemplate(trunk)
        self._attention = ModelTemplate(attention) if attention else None

    def build(self, input_shape: Shape) -> None:
        copies = range(1 if self.shared else self.num_learners)
        units = self.embedding_dim // self.num_learners
        self.trunks = [self._trunk.copy(f"trunk_{k}") for k in copies]
        self.projections = [
            self._dense(units, f"projection_{k}") for k in copies
        ]
        # Each trunk has its own pooling, because the power of GeM is trained.
        self.pools = [
            FeaturePooling(
                self.pooling, dtype=self.dtype_policy, name=f"pool_{k}"
            )
            for k in copies
        ]
        for k in copies:
            features_shape = self.trunks[k].output_shape
            self.pools[k].build(features_shape)
            self.projections[k].build((None, features_shape[-1]))
        self.masks: list[layers.Dense] = []
        if self._attention is not None:
            self._build_attention(self._attention, input_shape)
        self._trunk.forget()

    def _build_attention(self, template: "ModelTemplate", shape: Shape) -> None:
        self.attention = template.copy("attention")
        template.forget()
        context_shape = self.attention.compute_output_shape(shape)
        if tuple(context_shape[1:-1]) != tuple(shape[1:-1]):
            raise ValueError(
                "`attention` of AttentionEnsemble must keep the height and "
                f"width of its input. Received: input_shape={shape}, which "
                f"becomes {context_shape}. Use an `attention` that ends "
                "earlier, or `splitting.without_downsampling`."
            )
        self.masks = [
            self._dense(shape[-1], f"mask_{m}", activation="sigmoid")
            for m in range(self.num_learners)
        ]
        for mask in self.masks:
            mask.build(context_shape)

    def _dense(self, units: int, name: str, **kwargs: Any) -> layers.Dense:
        return layers.Dense(units, dtype=self.dtype_policy, name=name, **kwargs)

    def call(
        self, inputs: Tensor, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        if not self.has_attention:
            if return_attention_scores:
                raise ValueError(
                    "AttentionEnsemble(attention=None) has no masks. Received: "
                    "return_attention_scores=True. Use a layer with an "
                    "`attention`."
                )
            return self._embed(self._maps(inputs))
        masks = self._masks(inputs)
        parts = self._embed([inputs * mask for mask in masks])
        if return_attention_scores:
            return parts, ops.stack(masks, axis=1)
        return parts

    def _embed(self, maps: list[Tensor]) -> Tensor:
        """Unit embeddings, (B, M, d), of M maps, (B, h, w, C)."""
        if self.shared:
            joined = self._embed_by(0, ops.concatenate(maps, axis=0))
            units = self.projections[0].units
            parts = ops.reshape(joined, (self.num_learners, -1, units))
            parts = ops.transpose(parts, (1, 0, 2))
        else:
            parts = ops.stack(
                [self._embed_by(m, x) for m, x in enumerate(maps)], axis=1
            )
        return l2_normalize(parts)

    def pooled(self, inputs: Tensor) -> Tensor:
        """The inputs of the projections, averaged over the learners, (B, C)."""
        maps = self._maps(inputs)
        if self.has_attention:
            maps = [inputs * mask for mask in self._masks(inputs)]
        features = [self._pooled_by(m, x) for m, x in enumerate(maps)]
        return ops.mean(ops.stack(features), axis=0)

    def _maps(self, inputs: Tensor) -> list[Tensor]:
        """The maps of the learners without masks."""
        if not self.stacked:
            return [inputs] * self.num_learners
        maps: list[Tensor] = ops.split(inputs, self.num_learners, axis=-1)
        return maps

    def _masks(self, inputs: Tensor) -> list[Tensor]:
        context = self.attention(inputs)
        return [mask(context) for mask in self.masks]

    def _embed_by(self, k: int, maps: Tensor) -> Tensor:
        return self.projections[k](self._pooled_by(k, maps))

    def _pooled_by(self, k: int, maps: Tensor) -> Tensor:
        k = 0 if self.shared else k
        return self.pools[k](self.trunks[k](maps))

    def merge(self, parts: Tensor) -> Tensor:
        """Merges the learners into the unit-length embedding of the ensemble.

        Args:
            parts: Output of this layer, (B, M, d).

        Returns:
            (B, D), the concatenated learners, divided by √M, so that squared
            distances are averages over the learners.
        """
        flat = ops.reshape(parts, (-1, self.embedding_dim))
        return flat / math.sqrt(self.num_learners)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        dim = self.embedding_dim // self.num_learners
        return (input_shape[0], self.num_learners, dim)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Traces `call`, because its arguments determine what it returns.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> Config:
        config: Config = super().get_config()
        config.update(
            trunk=self._trunk.config,
            attention=self._attention.config if self._attention else None,
            embedding_dim=self.embedding_dim,
            num_learners=self.num_learners,
            shared=self.shared,
            stacked=self.stacked,
            pooling=self.pooling,
        )
        return config

    @classmethod
    def from_config(cls, config: Config) -> "AttentionEnsemble":
        # Keras modifies the config of a model that it deserializes.
        restored = {
            name: keras.saving.deserialize_keras_object(
                copy.deepcopy(config[name])
            )
            for name in ("trunk", "attention")
        }
        return cls(**{**config, **restored})
