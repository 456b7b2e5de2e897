"""What a pretrained network reaches before anything is trained."""

from dataclasses import dataclass, replace
from typing import Any

import keras

from keras_dml import data
from keras_dml.data.examples import About
from keras_dml.data.feature_set import FEATURES, FeatureSet
from keras_dml.embedding.in_memory import embed
from keras_dml.evaluation import Results
from keras_dml.methods import EmbeddingHead
from keras_dml.model.embedding_model import EmbeddingModel
from keras_dml.model.head import Head
from keras_dml.model.head_start import example_batches, receive
from keras_dml.model.projections import fit_projection
from keras_dml.recipes import Recipe
from keras_dml.runs.measuring import measure
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import FloatArray, Shape, Tensor, Tensors


@dataclass(frozen=True)
class Baseline:
    """What a trained model of a pretrained network is compared with.

    Attributes:
        projection: How features became as many numbers as the run's embedding
            has, such as "PCA".
        dim: Number of these.
        num_features: Number of pooled features of the network.
        features: Metrics of the pooled features as they are.
    """

    projection: str
    dim: int
    num_features: int
    features: dict[str, float]


class _Pooled(Head):
    """Pooled features, as they are or of unit length, as the embedding."""

    def __init__(self, is_unit: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_unit = is_unit

    def embed(self, pooled: Tensor) -> Tensors:
        return {"embedding": l2_normalize(pooled) if self.is_unit else pooled}


def measure_baseline(
    recipe: Recipe, network: keras.Model, splits: data.DataSplits, dim: int
) -> tuple[Results, Baseline]:
    """Results of an untouched network's features at the run's dimension.

    Of PCA and whitening, the one is taken that finds more of the classes held
    out in folds of the training classes.

    Args:
        recipe: The recipe of the run.
        network: Its backbone, not trained.
        splits: The data; training and test examples may be features of it.
        dim: Dimensions of the run's embedding.

    Returns:
        Results on the test set, and what they belong to.
    """
    pooling = getattr(recipe.method, "pooling", "avg")
    pooled = EmbeddingModel(network, _Pooled(pooling=pooling))
    features, labels = receive(
        pooled,
        example_batches(pooled, splits.train),
        lambda x, mask: [pooled.head.pool(x, mask)],
    )
    projection = fit_projection(features[0], labels, dim)
    test = _as_features(splits.test, embed(pooled, splits.test))
    splits = replace(splits, test=test)
    shape = (None, features[0].shape[-1])
    projected = _on_features(network, EmbeddingHead(dim, pooling="none"), shape)
    dense = projected.head.dense
    dense.kernel.assign(projection.kernel)
    dense.bias.assign(-projection.center @ projection.kernel)
    results = measure(_without(recipe, "parts"), projected, splits)
    untouched = _on_features(
        network, _Pooled(is_unit=True, pooling="none"), shape
    )
    metrics = {"recall@1", "map@r", recipe.evaluation.monitor}
    few = _without(recipe, "parts", "prefixes", metrics=tuple(sorted(metrics)))
    whole = dict(measure(few, untouched, splits))
    return results, Baseline(projection.name, dim, shape[-1], whole)


def _as_features(examples: data.Examples, features: FloatArray) -> FeatureSet:
    about = About(examples.labels, examples.names, examples.ids)
    found = FeatureSet.of({FEATURES: features}, None, about)
    return found.with_groups(examples.groups)


def _on_features(
    network: keras.Model, head: Head, shape: Shape
) -> EmbeddingModel:
    """A model of the network's pooled features, not of its inputs."""
    head.build(shape)
    head.built = True
    return EmbeddingModel(network, head)


def _without(recipe: Recipe, *keys: str, **changes: Any) -> Recipe:
    changes |= dict.fromkeys(keys)
    section = recipe.evaluation.model_copy(update=changes)
    return recipe.model_copy(update={"evaluation": section})
