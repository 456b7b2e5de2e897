"""ProxyLoss: the base class of losses with learned class vectors."""

import math
from collections.abc import Sequence
from typing import Any, cast

import keras
from keras import ops

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.pairs import Batch
from keras_dml.losses.sampled_classes import (
    SampledClasses,
    positions_of,
    rows_of_classes,
)
from keras_dml.losses.variables import (
    add_loss_variable,
    check_class_ids,
    check_not_built,
    nan_outside,
    not_built_error,
)
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Several, Tensor


class ProxyLoss(MetricLoss):
    """Base class of losses that compare embeddings with learned proxies.

    Subclasses implement `values`. Proxies are weights of the layer that builds
    the loss, so losses with proxies cannot be passed to plain `compile`.

    Args:
        num_classes: Number of classes, C. Labels must be class ids in [0,
            num_classes): any other id raises an error, or gives the example a
            loss of NaN inside a compiled graph.
        initializer: Initializer of the (C, D) proxies; by default, a normal
            distribution with standard deviation √(2/C).
        class_share: Fraction of the classes used in a step: those of the batch
            and other, random ones; the rest is ignored. Time and memory, apart
            from the proxies and their optimizer states, depend only on the
            number of classes used. See `SampledClasses`. 1 uses all classes.
        seed: Seed for drawing classes; None: determined by the seed of Keras.
        trainable_proxies: Whether proxies are learned. False keeps their
            initial values: with `initializer="identity"`, one-hot vectors.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `num_classes` is smaller than 2, or `class_share` is out
            of range or not supported by this loss.
        RuntimeError: When called before `build`.
    """

    takes_references = False
    can_sample = True
    """Whether the loss can be computed on some of the classes."""

    def __init__(
        self,
        num_classes: Several,
        initializer: Any = "he_normal",
        class_share: float = 1.0,
        seed: int | None = None,
        trainable_proxies: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        owner = type(self).__name__
        self.num_classes = num_classes
        self.initializer = keras.initializers.get(initializer)
        self.class_share = class_share
        self.seed = seed
        self.trainable_proxies = trainable_proxies
        self.proxies: keras.Variable | None = None
        self.sampled: SampledClasses | None = None
        if class_share != 1:
            if not self.can_sample:
                raise ValueError(
                    f"`class_share` of {owner} must be 1, because this loss "
                    "cannot be computed on some of the classes. Received: "
                    f"class_share={class_share!r}. Use ArcFaceLoss or another "
                    "loss on proxies."
                )
            self.sampled = SampledClasses(owner, num_classes, class_share, seed)

    gains_from_means = False
    """Whether proxies should start at class means where the head starts from
    features: measured, see "Class vectors" in the results of Caltech-101."""

    needs_positives = False  # The proxies of the class suffice.
    num_classes: int

    owns_variables: Any = True

    @property
    def num_proxies(self) -> int:
        """Number of proxies; every class has the same number."""
        return self.num_classes

    @property
    def _rows_each(self) -> int:
        return self.num_proxies // self.num_classes

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        check_not_built(type(self).__name__, self.proxies is not None)
        self.proxies = add_loss_variable(
            owner,
            "proxies",
            shape=(self.num_proxies, embedding_dim),
            initializer=self.initializer,
            trainable=self.trainable_proxies,
        )
        if self.sampled is not None:
            self.proxies.rows_a_step = self.sampled.count * self._rows_each
            name = f"{self.name}_seed_generator"
            setattr(owner, name, self.sampled.seed_generator)

    def start_from(
        self,
        parts: Sequence[MetricLoss],
        class_means: Tensor | None = None,
    ) -> None:
        """Concatenates unit slices and divides by √K, as for embeddings.

        Means serve a loss with one proxy per class, and classes that have
        examples: several that start at one point would never part.
        """
        proxies = cast(keras.Variable, self.proxies)
        start = ops.convert_to_tensor(proxies)
        if parts:
            slices = [l2_normalize(part.proxies) for part in parts]
            # The last slice is padded where K does not divide D.
            start = ops.concatenate(slices, axis=1)[:, : proxies.shape[1]]
            start = start / math.sqrt(len(slices))
        if class_means is not None and self._rows_each == 1:
            means = ops.cast(class_means, "float32")
            has_examples = ops.any(means != 0.0, axis=1, keepdims=True)
            start = ops.where(has_examples, means, start)
        proxies.assign(start)

    def call(self, batch: Batch) -> Tensor:
        name = type(self).__name__
        if self.proxies is None:
            code = f"{name}(num_classes={self.num_classes})"
            raise not_built_error(name, code)
        if batch.ref_embeddings is not None:
            raise ValueError(
                f"{name} compares embeddings with its proxies and does not "
                "take `ref_embeddings`. Pass None."
            )
        check_class_ids(name, batch.labels, self.num_classes)
        if self.sampled is not None:
            # The loss is computed as if there were only the drawn classes.
            ids = self.sampled.draw(batch.labels)
            labels = positions_of(batch.labels, ids)
            rows = rows_of_classes(self.proxies, ids, self._rows_each)
            values = self.among(ids).values(labels, batch.embeddings, rows)
            return nan_outside(values, labels, self.sampled.count)
        proxies = ops.convert_to_tensor(self.proxies)
        values = self.values(batch.labels, batch.embeddings, proxies)
        return nan_outside(values, batch.labels, self.num_classes)

    def among(self, classes: Tensor) -> "ProxyLoss":
        """Returns the loss restricted to some of the classes.

        Args:
            classes: (S,) their ids.
        """
        return self

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        """Computes the losses, (B,), from class ids, embeddings and proxies.

        Embeddings are (B, D); proxies are (C, D) and not normalized.
        """
        raise NotImplementedError


def class_mask(labels: Tensor, num_classes: int) -> Tensor:
    """(B, C) boolean: which class each example belongs to."""
    classes = ops.arange(num_classes, dtype="int32")
    return ops.equal(labels[:, None], ops.cast(classes, labels.dtype)[None])


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """(B,) −log softmax of the logit that `targets`, (B, C), marks."""
    return ops.categorical_crossentropy(
        ops.cast(targets, "float32"), logits, from_logits=True
    )
