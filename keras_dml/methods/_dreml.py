"""DREML: an ensemble whose learners see different classes."""

from typing import Any, Literal

import keras

from keras_dml import losses
from keras_dml.losses.base import LossLike
from keras_dml.methods._baseline import EmbeddingObjective, LossInput
from keras_dml.methods._dcml.tasks import MetaClasses
from keras_dml.methods._ensemble import Start, independent_learners
from keras_dml.methods.declaration import declare
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.types import Config, Count, Pooling, Units

ONE_HOT_PROXIES: Config = {
    "name": "normalized_softmax",
    "temperature": 1.0,
    "initializer": "identity",
    "trainable_proxies": False,
}
"""Proxy-NCA with one-hot proxies, on which the embeddings' axes are fixed.

The squared distances of unit vectors are 2 − 2 cos: with a temperature of 2
for distances, the logits are cosines.
"""


@declare(
    "dreml",
    "independent learners, each on its own random groups of the classes",
    examples={
        "num_learners": 2,
        "num_classes": 12,
        "num_meta_classes": 3,
        "start": "random",
        "pooling": "max",
    },
)
def dreml(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    num_learners: Units = 4,
    num_classes: Count | Literal["auto"] = "auto",
    num_meta_classes: Units | None = None,
    loss: LossLike | None = None,
    loss_input: LossInput = "embedding",
    shared_trunk: bool = False,
    start: Start | None = None,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Deep Randomized Ensembles for Metric Learning (Xuan et al., 2018).

    What it computes: an `ensemble` of K independent networks. Every learner k
    has a random map $l_k$ from the training classes to M meta-classes of about
    equal size, and is trained with the meta-classes as labels. Two classes
    that one learner does not distinguish are likely to be in different groups
    of another. The embedding is the concatenation of the learners'
    embeddings:

    $$
    \mathcal{L} = \sum_k \mathcal{L}_{metric}(x_k, l_k(y)) , \qquad
    x = \frac{1}{\sqrt{K}} \left( x_1, \dots, x_K \right) .
    $$

    The default loss is Proxy-NCA with a fixed one-hot proxy for each
    meta-class, the cross entropy of

    $$
    p(c \mid x_k) = \frac{e^{x_{k,c}}}{\sum_{z=1}^{M} e^{x_{k,z}}} ,
    $$

    where $x_{k,c}$ is dimension c of the unit embedding of learner k, or of
    its activation.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        num_classes: Number of training classes; labels must be in [0,
            num_classes). "auto", in recipes: that of the training set.
        num_meta_classes: Number of meta-classes, M, into which each learner
            groups the classes. None: one per dimension of a learner's
            embedding, D/K, as in the released code, but at most half as many
            as there are classes; with another loss, that half.
        loss: The loss of every learner, on meta-classes; see `baseline`. If it
            has a `num_classes`, it is replaced by M. None: one-hot proxies.
        loss_input: What the loss is given: the unit "embedding" of a learner,
            or the "activation" before it is scaled to unit length, which the
            released code has as logits: with unit embeddings, one-hot proxies
            and M = 12, the cross entropy cannot fall below 1.62. Another
            `loss` normalizes its input unless it has `normalize=False`.
        shared_trunk: See `ensemble`.
        start: See `ensemble`.
        pooling: See `Head`: "avg", "max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`. Learner k groups the classes with the
        seed k: every model with the same arguments has the same groups.

    Raises:
        ValueError: If `num_classes` is not given, M is not between 2 and the
            number of classes, there are more one-hot proxies than dimensions,
            or an argument is not as described for `ensemble`.

    Deviations:
        - All learners are trained on the same batches, at the same time. In
          the paper, each is trained on its own.
        - In the released code, the embedding has one dimension for each
          meta-class. Here it may have more, which one-hot proxies leave near
          zero.
        - Batches are balanced by class, not by meta-class, and a class is not
          limited in its number of images: released, 300 (2019) or 500.
        - The released code keeps the epoch in which a learner has the highest
          training accuracy; here all learners are those of the same epoch.

    Reference:
        Xuan et al., "Deep Randomized Ensembles for Metric Learning", ECCV
        2018, https://arxiv.org/abs/1808.04469.
    """
    if num_classes == "auto":
        raise ValueError(
            "`num_classes` of dreml must be the number of training classes. "
            'Received: "auto", which only recipes can resolve. Use, for '
            "example, num_classes=len(set(data.train.labels))."
        )
    dim = embedding_dim // num_learners
    most = dim if loss is None else num_classes
    count = num_meta_classes or max(2, min(most, num_classes // 2))
    _check_one_hot(loss, count, dim)

    def objective(k: int) -> Objective:
        return MetaClasses(
            EmbeddingObjective(
                _meta_loss(loss, count, loss_input),
                loss_input,
                name="objective",
            ),
            num_classes,
            count,
            seed=k,
            name=f"learner_{k}",
        )

    return independent_learners(
        backbone, objective, embedding_dim, num_learners, shared_trunk, start,
        pooling, loss_input == "activation", **kwargs,
    )  # fmt: skip


def _check_one_hot(loss: LossLike | None, count: int, dim: int) -> None:
    if loss is None and count > dim:
        raise ValueError(
            "`num_meta_classes` of dreml must be at most the number of "
            "dimensions of a learner, each of which is the proxy of a "
            f"meta-class. Received: num_meta_classes={count} for {dim} "
            "dimensions. Use a larger embedding_dim or another loss, such as "
            '"proxy_nca".'
        )


def _meta_loss(
    loss: LossLike | None, count: int, loss_input: str
) -> losses.MetricLoss:
    """A new loss for `count` meta-classes."""
    if loss is None:
        own = {"num_classes": count, "normalize": loss_input == "embedding"}
        return losses.get({**ONE_HOT_PROXIES, **own})
    found = losses.get(loss)
    if found.num_classes is None:
        return found.copy()
    config = keras.saving.serialize_keras_object(found)
    return losses.get(_with_num_classes(config, count))


def _with_num_classes(config: Any, count: int) -> Any:
    """A config in which every number of classes is `count`."""
    if isinstance(config, list | tuple):
        return [_with_num_classes(value, count) for value in config]
    if not isinstance(config, dict):
        return config
    return {
        key: count
        if key == "num_classes" and value is not None
        else _with_num_classes(value, count)
        for key, value in config.items()
    }
