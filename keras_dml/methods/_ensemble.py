"""Ensemble: several baselines that know nothing of each other."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import keras
from keras import layers, ops

from keras_dml import backbones, losses
from keras_dml.backbones.splitting import side_by_side
from keras_dml.losses.base import LossLike
from keras_dml.methods._baseline import EmbeddingObjective
from keras_dml.methods._parts import ObjectiveWrapper, SeparateTasks
from keras_dml.methods.declaration import declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.arguments import check_divisible
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.models import copy_model, is_untrained
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Pooling, Shape, Tensor, Tensors, Units


@register
class IndependentHead(Head):
    """A dense layer and a unit embedding for every learner of an ensemble.

    Args:
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        shared_trunk: Whether all learners take the same features. Otherwise
            the features of K networks are side by side, and learner k takes
            the k-th of K equal shares of the channels.
        activations: Whether to return also the outputs of the dense layers
            before they are scaled to unit length.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D), "parts": (B, K, D / K)}`, float32: the learners'
        unit embeddings, and their concatenation divided by √K. With
        `activations`, also `"activations"`, (B, K, D / K), of any length.

    Raises:
        ValueError: If `num_learners` does not divide `embedding_dim`, or, in
            `build`, the channels.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_learners: int,
        shared_trunk: bool = False,
        activations: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_divisible(
            "an ensemble", embedding_dim, "`num_learners`", num_learners
        )
        self.embedding_dim = embedding_dim
        self.num_learners = num_learners
        self.shared_trunk = shared_trunk
        self.activations = activations
        self.dense = [
            layers.Dense(
                embedding_dim // num_learners,
                dtype=self.dtype_policy,
                name=f"dense_{k}",
            )
            for k in range(num_learners)
        ]

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        channels = features_shape[-1]
        shares = 1 if self.shared_trunk else self.num_learners
        if channels % shares:
            raise ValueError(
                "The features of IndependentHead must be those of "
                f"{shares} networks side by side. Received: {channels} "
                "channels. Use shared_trunk=True for one network."
            )
        for dense in self.dense:
            dense.build((None, channels // shares))

    def linear_layers(self) -> list[Linear]:
        return [Linear.of(*self.dense, is_rotated=True)]

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        # Before training, the networks of an ensemble may be equal.
        return self._features(self.pool(features, mask))[:1]

    def _features(self, pooled: Tensor) -> list[Tensor]:
        """The input of each learner, (B, C)."""
        if self.shared_trunk:
            return [pooled] * self.num_learners
        shares: list[Tensor] = ops.split(pooled, self.num_learners, axis=-1)
        return shares

    def embed(self, pooled: Tensor) -> Tensors:
        count, features = self.num_learners, self._features(pooled)
        activations = ops.stack(
            [dense(x) for dense, x in zip(self.dense, features, strict=True)],
            axis=1,
        )  # (B, K, d)
        parts = l2_normalize(activations)
        whole = ops.reshape(parts, (-1, self.embedding_dim))
        outputs = {"embedding": whole / count**0.5, "parts": parts}
        if self.activations:
            outputs["activations"] = activations
        return outputs


@register
class Bootstrap(ObjectiveWrapper):
    """An objective that is given a bootstrap sample of every batch.

    B of the B examples are drawn with replacement. The terms of an example
    count as often as it was drawn, which may be never; it remains a positive
    or a negative for the others. Terms of held-out batches are those of a
    sample, too, the same in every evaluation.

    Args:
        objective: See `ObjectiveWrapper`.
        seed: Seed of the samples; use a different one for every learner. None:
            determined by the seed of Keras.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: The outputs that the objective needs.
        targets: The targets that the objective needs.

    Returns:
        The terms of the objective, (B,), each times the number of draws.

    Reference:
        Breiman, "Bagging Predictors", Machine Learning 1996.
    """

    def __init__(
        self, objective: Objective, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(objective, **kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        size = ops.shape(targets["label"])[0]
        uniform = keras.random.uniform((size,), seed=self.seed_generator)
        rows = ops.cast(ops.floor(uniform * ops.cast(size, "float32")), "int32")
        draws = ops.equal(rows[:, None], ops.arange(size, dtype="int32")[None])
        counts = ops.sum(ops.cast(draws, "float32"), axis=0)
        values = self.objective(outputs, targets)
        return {name: value * counts for name, value in values.items()}


@register
class IndependentObjective(SeparateTasks):
    """An objective for each learner; the terms are the sums over learners.

    The gradient of a learner is then that which it would have alone.

    Args:
        objectives: Objectives with the same terms that read
            `outputs["embedding"]`, such as `EmbeddingObjective`; the k-th is
            given the embedding of learner k. Each belongs to one learner,
            because it may own variables.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, K, d).
        targets: The targets that the objectives need.

    Returns:
        The terms of the objectives, each summed over them, (B,).

    Raises:
        ValueError: If an objective is given twice, or their terms differ.
    """

    def __init__(self, objectives: Sequence[Objective], **kwargs: Any) -> None:
        super().__init__(objectives, **kwargs)
        terms = {task.terms for task in objectives}
        if len(terms) != 1:
            raise ValueError(
                "`objectives` of IndependentObjective must have the same "
                f"terms. Received: {sorted(terms)}. Use SeparateTasks for "
                "different objectives."
            )
        (self.terms,) = terms

    @property
    def term_weights(self) -> dict[str, Any]:
        return self.objectives[0].term_weights

    # All have the same kind of loss.
    needs_positives: Any = property(lambda x: x.objectives[0].needs_positives)
    needs_negatives: Any = property(lambda x: x.objectives[0].needs_negatives)
    needs_triplets: Any = property(lambda x: x.objectives[0].needs_triplets)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        values = super().call(outputs, targets)
        learners = range(len(self.objectives))
        return {
            name: sum(values[f"{k}_{name}"] for k in learners)
            for name in self.terms
        }


Start: TypeAlias = Literal["same", "random"]


@declare(
    "ensemble",
    "baselines trained on the same batches but otherwise independent",
    examples={
        "num_learners": 2,
        "start": "same",
        "pooling": "gem",
        "rate_multipliers": {"backbone/learner_1_": 0.5},
    },
)
def ensemble(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    num_learners: Units = 4,
    loss: LossLike = "margin",
    shared_trunk: bool = False,
    start: Start | None = None,
    bootstrap: bool = False,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Independent baselines (Lakshminarayanan et al., 2017).

    What it computes: K networks, each with a dense layer and a unit embedding
    of D/K dimensions, trained by a loss of their own. No gradient passes
    between them; the embedding is the concatenation. It has as many dimensions
    as one baseline of size D, and is what every other ensemble should be
    compared with:

    $$
    \mathcal{L} = \sum_k \mathcal{L}_{metric}(x_k) , \qquad
    x = \frac{1}{\sqrt{K}} \left( x_1, \dots, x_K \right) ,
    $$

    where $x_k$ is the unit embedding of learner k.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        loss: The loss of every learner, see `baseline`. Each learner has its
            own: its own β, proxies and memory.
        shared_trunk: Whether there is one backbone instead of K, which all
            learners train: the ensemble of heads.
        start: Initial weights of the K backbones: the "same" as the given
            one's, or "random", new ones for all but the first. None: random if
            the backbone is untrained, that is, if all of its biases and
            normalization weights are constant.
        bootstrap: Whether each learner is trained on its own bootstrap sample
            of every batch, see `Bootstrap`.
        pooling: See `Head`: "avg", "max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`. With K = 1, it is the baseline, bit
        for bit.

    Raises:
        ValueError: If K does not divide D, or `start` is unknown or given
            although there is a single backbone.

    Deviations:
        - Each step shows the same batch, with the same augmentation, to all
          learners; the paper shuffles the data for each. `bootstrap` makes
          their examples differ. Learners with their own batches are K runs of
          `baseline` with different seeds.
        - Clipping by the norm of all gradients together, the loss scale of
          mixed precision and learned weights of terms are common to all
          learners; with any of these, they are not strictly independent.
        - A frozen backbone that all learners would share is computed once.
        - The paper averages predictions; embeddings are concatenated, so that
          the similarity is the average of the learners' similarities.

    Reference:
        Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty
        Estimation using Deep Ensembles", NeurIPS 2017,
        https://arxiv.org/abs/1612.01474.
    """

    def objective(k: int) -> Objective:
        template = losses.get(loss)
        # The first takes the loss itself: K = 1 is the baseline.
        learner_loss = template if k == 0 else template.copy()
        task = EmbeddingObjective(learner_loss, name=f"learner_{k}")
        if not bootstrap:
            return task
        return Bootstrap(task, name=f"bootstrap_{k}")

    return independent_learners(
        backbone, objective, embedding_dim, num_learners, shared_trunk, start,
        pooling, **kwargs,
    )  # fmt: skip


def independent_learners(
    backbone: str | keras.Model,
    objective: Callable[[int], Objective],
    embedding_dim: int,
    num_learners: int,
    shared_trunk: bool,
    start: Start | None,
    pooling: Pooling,
    activations: bool = False,
    **kwargs: Any,
) -> MetricModel:
    """The model of an ensemble whose k-th learner has `objective(k)`.

    For `activations`, see `IndependentHead`; for other arguments, `ensemble`.
    """
    network = backbones.get(backbone)
    start = _start(network, shared_trunk or num_learners == 1, start)
    # Equal networks that are not trained stay equal.
    is_one = start is None or (start == "same" and not network.trainable)
    head = IndependentHead(
        embedding_dim,
        num_learners,
        shared_trunk=is_one,
        activations=activations,
        pooling=pooling if is_one else "avg",  # Pooled by `side_by_side`.
        name="head",
    )
    return MetricModel(
        backbone=network
        if is_one
        else _copies(network, num_learners, start == "same", pooling),
        head=head,
        objective=IndependentObjective(
            [objective(k) for k in range(num_learners)], name="objective"
        ),
        **kwargs,
    )


def _start(
    network: keras.Model, is_one: bool, start: Start | None
) -> Start | None:
    """How K networks start; None if there is one network."""
    if not is_one:
        return start or ("random" if is_untrained(network) else "same")
    if start is not None:
        raise ValueError(
            "`start` of an ensemble is only for several backbones. Received: "
            f"start={start!r} with a single backbone. Omit it, or use "
            "shared_trunk=False and two or more learners."
        )
    return None


def _copies(
    network: keras.Model, count: int, same_weights: bool, pooling: Pooling
) -> keras.Model:
    """The network and copies of it, side by side."""

    def rename(layer: layers.Layer, prefix: str) -> layers.Layer:
        # Prefixes tell the variables of learners apart.
        config = layer.get_config()
        return type(layer).from_config({**config, "name": prefix + layer.name})

    copies = [
        copy_model(
            network,
            partial(rename, prefix=f"learner_{k}_"),
            name=f"learner_{k}",
            same_weights=same_weights or k == 0,
        )
        for k in range(count)
    ]
    joined = side_by_side(copies, network.name, pooling)
    if not network.trainable:
        joined.trainable = False
    return joined
