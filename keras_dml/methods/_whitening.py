"""Whitening: a projection of a network's features, computed in one pass."""

from functools import partial
from typing import Any

import keras

from keras_dml import backbones, losses
from keras_dml.losses.base import LossLike
from keras_dml.methods._baseline import EmbeddingHead, EmbeddingObjective
from keras_dml.methods.declaration import declare
from keras_dml.model.fit_callbacks import split_resume
from keras_dml.model.fit_data import prepare_data
from keras_dml.model.head_start import receive, start_head, training_batches
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Pooling, Units


@register
class ProjectionModel(MetricModel):
    """A `MetricModel` whose `fit` computes its head, without gradients.

    Args and call arguments are those of `MetricModel`.
    """

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Computes the head from the features of the examples, in one pass.

        Callbacks see one epoch without steps, whatever `epochs`.

        Args:
            x: See `MetricModel.fit`. It takes at most 10,000 examples: at
                random, or the first of batches without a plan.
            y: See `MetricModel.fit`.
            batch_size: Ignored, as are `epochs`, `verbose` and all others:
                there are no steps.
            epochs: See `batch_size`.
            verbose: See `batch_size`.
            callbacks: See `MetricModel.fit`. There is nothing to resume.
            *args: See `batch_size`.
            **kwargs: See `batch_size`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: If the data can be read only once, as those of a
                generator, or have no classes: examples with several labels
                each.
        """
        data = prepare_data(self, "fit", (x, y, None))
        self.label_names = data.names or self.label_names
        batches = training_batches(self, x, y)
        if batches is None:
            raise ValueError(
                "`x` of whitening must be data that can be read again. "
                f"Received: {type(x).__name__}. Use arrays, a tf.data.Dataset "
                "or a PyDataset."
            )
        callback_list = keras.callbacks.CallbackList(
            split_resume(callbacks)[1],
            add_history=True,
            model=self,
            epochs=1,
            steps=0,
            verbose=0,
        )
        callback_list.on_train_begin()
        callback_list.on_epoch_begin(0)
        received = partial(receive, self, batches)
        start_head(self, received, ("whitening",), "whitening")
        logs: dict[str, float] = {}
        callback_list.on_epoch_end(0, logs)
        callback_list.on_train_end(logs)
        return self.history


@declare(
    "whitening",
    "a projection of the features that is computed, not trained",
    examples={"pooling": "max"},
)
def whitening(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    loss: LossLike = "contrastive",
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""The features of a network, whitened within classes, without training.

    What it computes: backbone → pooling → `Dense(embedding_dim)` → unit
    embedding, as `baseline`. `fit` computes the dense layer in one pass:
    directions in which images of one class differ are scaled down, so that the
    distances that are left tell classes apart, also those that nobody trains
    on:

    $$
    x = \frac{W (f - \bar{f})}{\| W (f - \bar{f}) \|} , \qquad
    W^T = E (\Lambda + \lambda \bar{\Lambda} I)^{-1/2} V_D ,
    $$

    where $f$ are the pooled features, $\bar{f}$ their mean, $S_w = E \Lambda
    E^T$ is their covariance within classes, $\bar{\Lambda}$ its mean
    eigenvalue, and $V_D$ are the first D principal components after the
    scaling. The shrinkage λ is chosen on folds of the training classes, and W
    is then computed from all of them.

    Args:
        backbone: See `baseline`. It is not changed.
        embedding_dim: Dimensions of the embedding, D.
        loss: The loss of `evaluate`; see `baseline`. `fit` does not use it.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`; `ProjectionModel` describes its `fit`.

    Deviations:
        - The papers invert $S_w$ as it is, λ = 0; with fewer examples than
          features, it cannot be inverted.
        - $S_w$ weights classes by their numbers of images, not of pairs.
        - More than 512 features, or D if that is larger, are first reduced to
          that many principal components.

    Reference:
        Mikolajczyk and Matas, "Improving Descriptors for Fast Tree Matching by
        Optimal Linear Projection", ICCV 2007; as "learned whitening" in
        Radenović et al., "Fine-tuning CNN Image Retrieval with No Human
        Annotation", TPAMI 2018, Sec. 3.4, https://arxiv.org/abs/1711.02512;
        Bar-Hillel et al., "Learning Distance Functions using Equivalence
        Relations", ICML 2003 (RCA).
    """
    kwargs["head_init"] = "random"  # `fit` computes it.
    return ProjectionModel(
        backbone=backbones.get(backbone),
        head=EmbeddingHead(embedding_dim, pooling=pooling, name="head"),
        objective=EmbeddingObjective(losses.get(loss), name="objective"),
        **kwargs,
    )
