"""Results of an untouched pretrained network, the baseline of a run."""

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
from keras_dml.model.head_start import (
    KINDS,
    LayerInputs,
    example_batches,
    needs_start,
    receive,
    start_head,
)
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.projections import Projection, fit_projection
from keras_dml.recipes import Recipe
from keras_dml.recipes.schema import Training
from keras_dml.runs.measuring import measure
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.models import is_untrained
from keras_dml.utils.types import FloatArray, Labels, Shape, Tensor, Tensors


@dataclass(frozen=True)
class Baseline:
    """The untouched network that a trained model is compared with.

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


def measure_before(
    recipe: Recipe,
    network: keras.Model,
    training: Training,
    splits: data.DataSplits,
) -> tuple[Results, Baseline | None]:
    """Measures the baseline of a run.

    For an untrained network, this is the model before training. For a
    pretrained one, it is a projection of its features to the dimension of the
    embedding: PCA or whitening, whichever finds more of the classes held out
    in folds of the training classes.

    The head of a model that is to start from features does so here, as these
    features are computed anyway.
    """
    model = training.model
    if is_untrained(network):
        return measure(recipe, model, training.splits), None
    pooling = getattr(recipe.method, "pooling", "avg")
    pooled = EmbeddingModel(network, _Pooled(pooling=pooling))
    if model.backbone is network:
        inputs = training.splits
        # A loss with a row per class takes numbers from 0.
        examples = recipe.method.number_classes(inputs.train)
        features, labels = _pool_and_start(pooled, model, examples)
    else:
        inputs = splits
        if needs_start(model):
            model.start_head(
                recipe.method.number_classes(training.splits.train)
            )
        features, labels = _pool(pooled, inputs.train)
    dim = model.compute_output_shape(model.input_shape)[-1]
    projection = fit_projection(features, labels, dim)
    return _measure_untouched(recipe, pooled, inputs, projection)


def _pool(
    pooled: EmbeddingModel, examples: data.Examples
) -> tuple[FloatArray, Labels | None]:
    (features,), labels = receive(
        pooled,
        example_batches(pooled, examples),
        lambda x, mask: [pooled.head.pool(x, mask)],
    )
    return features, labels


def _pool_and_start(
    pooled: EmbeddingModel, model: MetricModel, examples: data.Examples
) -> tuple[FloatArray, Labels | None]:
    """Pooled features, from the pass over examples that starts the head."""
    starts = needs_start(model)

    def inputs_of(x: Tensor, mask: Tensor | None) -> list[Tensor]:
        received = model.head.linear_inputs(x, mask) if starts else []
        return [pooled.head.pool(x, mask), *received]

    batches = example_batches(model, examples)
    (features, *received), labels = receive(model, batches, inputs_of)
    if starts:
        kinds = KINDS[model.head_init]
        start_head(model, lambda: LayerInputs(received, labels), kinds)
    return features, labels


def _measure_untouched(
    recipe: Recipe,
    pooled: EmbeddingModel,
    splits: data.DataSplits,
    projection: Projection,
) -> tuple[Results, Baseline]:
    """Results of projected features, and those of the features as they are."""
    channels, dim = projection.kernel.shape
    network, shape = pooled.backbone, (None, channels)
    test = splits.test
    about = About(test.labels, test.names, test.ids)
    features = FeatureSet.of({FEATURES: embed(pooled, test)}, None, about)
    test = features.with_groups(test.groups)
    splits = replace(splits, test=test)
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
    return results, Baseline(projection.name, dim, channels, whole)


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
