"""DREML: an ensemble whose learners see different classes."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_dml import losses
from keras_dml.losses.base import LossLike
from keras_dml.losses.variables import check_class_ids, nan_outside, take_rows
from keras_dml.methods._baseline import EmbeddingObjective, LossInput
from keras_dml.methods._ensemble import Start, independent_learners
from keras_dml.methods._parts import ObjectiveWrapper
from keras_dml.methods.declaration import declare
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Count,
    Pooling,
    Several,
    Shapes,
    Tensors,
    Units,
)

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


@register
class MetaClasses(ObjectiveWrapper):
    """A task whose classes are random groups of the training classes.

    This is the relabeling of DREML: L̃ = {l_r(i)}, where r is a random map
    from classes to meta-classes of about equal size, which is saved with the
    model.

    Args:
        objective: The objective that is given meta-classes as labels.
        num_classes: Number of classes in the training set.
        num_meta_classes: Number of meta-classes that they are grouped into.
        seed: Seed of the groups; use a different one for every learner.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: The outputs that the objective needs.
        targets: Dict with `"label"`, (B,), in [0, num_classes). Any other
            label raises an error, or results in NaN inside a compiled graph.

    Returns:
        The terms of the objective.

    Raises:
        ValueError: If there are fewer than two meta-classes, or more than
            there are classes.

    Reference:
        Xuan et al., "Deep Randomized Ensembles for Metric Learning", ECCV
        2018.
    """

    def __init__(
        self,
        objective: Objective,
        num_classes: int,
        num_meta_classes: Several,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(objective, **kwargs)
        owner = type(self).__name__
        check_count(owner, "num_classes", num_classes, minimum=num_meta_classes)
        self.num_classes = num_classes
        self.num_meta_classes = num_meta_classes
        self.seed = seed

    @property
    def label_limit(self) -> int | None:
        return self.num_classes

    # Classes that a batch lacks say little about meta-classes.
    needs_positives = needs_negatives = needs_triplets = False

    def build(self, outputs_shape: Shapes) -> None:
        order = np.random.default_rng(self.seed).permutation(self.num_classes)
        self.meta_class = self.add_weight(
            shape=(self.num_classes,),
            initializer=lambda _, dtype=None: ops.cast(
                order % self.num_meta_classes, dtype
            ),
            dtype="int32",
            trainable=False,
            name="meta_class",
        )
        super().build(outputs_shape)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        labels = ops.convert_to_tensor(targets["label"])
        check_class_ids("MetaClasses", labels, self.num_classes)
        values = self.objective(outputs, self._relabel(targets))
        return {
            name: nan_outside(value, labels, self.num_classes)
            for name, value in values.items()
        }

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        super().after_step(outputs, self._relabel(targets))

    def _relabel(self, targets: Tensors) -> Tensors:
        labels = ops.convert_to_tensor(targets["label"])
        return {**targets, "label": take_rows(self.meta_class, labels)}


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
    max_groups = dim if loss is None else num_classes
    count = num_meta_classes or max(2, min(max_groups, num_classes // 2))
    if loss is None and count > dim:
        raise ValueError(
            "`num_meta_classes` of dreml must be at most the number of "
            "dimensions of a learner, each of which is the proxy of a "
            f"meta-class. Received: num_meta_classes={count} for {dim} "
            "dimensions. Use a larger embedding_dim or another loss, such as "
            '"proxy_nca".'
        )

    def meta_loss() -> losses.MetricLoss:
        if loss is None:
            is_unit = loss_input == "embedding"
            options = {"num_classes": count, "normalize": is_unit}
            return losses.get({**ONE_HOT_PROXIES, **options})
        template = losses.get(loss)
        if template.num_classes is None:
            return template.copy()
        config = keras.saving.serialize_keras_object(template)
        return losses.get(_with_num_classes(config, count))

    def objective(k: int) -> Objective:
        return MetaClasses(
            EmbeddingObjective(meta_loss(), loss_input, name="objective"),
            num_classes,
            count,
            seed=k,
            name=f"learner_{k}",
        )

    if kwargs.get("head_init", "auto") == "auto":
        # Learners should differ as much as possible.
        kwargs["head_init"] = "random"
    return independent_learners(
        backbone, objective, embedding_dim, num_learners, shared_trunk, start,
        pooling, loss_input == "activation", **kwargs,
    )  # fmt: skip


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
