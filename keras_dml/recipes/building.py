"""From a recipe to the objects that it describes."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_dml import backbones, data, methods
from keras_dml.callbacks import Recluster
from keras_dml.methods.diva_tasks import warn_without_triplets
from keras_dml.model import MetricModel
from keras_dml.recipes.data_sections import GlyphsData
from keras_dml.recipes.schema import ABE, Diva, Division, Recipe
from keras_dml.types import Shape

_LOADERS: dict[str, Callable[..., data.DataSplits]] = {
    "image_folder": data.image_folder_splits,
    "table": data.table,
    "cub200": data.cub200,
    "cars196": data.cars196,
    "sop": data.sop,
    "inshop": data.inshop,
    "vehicleid": data.vehicleid,
}


def splits(recipe: Recipe) -> data.DataSplits:
    """The data of a recipe: train, validation and test classes."""
    if isinstance(recipe.data, GlyphsData):
        return data.glyphs()
    arguments = recipe.data.model_dump(exclude={"name"})
    return _LOADERS[recipe.data.name](**arguments, seed=recipe.seed)


def model(recipe: Recipe) -> MetricModel:
    """The compiled model of a recipe."""
    arguments = recipe.method.model_dump(
        exclude={"name", "pair_batches", *Division.model_fields}
    )
    built = methods.METHODS[recipe.method.name](
        backbones.get(
            recipe.backbone.name,
            **recipe.backbone.model_dump(exclude={"name"}),
        ),
        loss_weights=dict(recipe.loss_weights),
        rate_multipliers=recipe.rate_multipliers,
        resize=recipe.resize,
        **arguments,
    )
    built.compile(optimizer(recipe), jit_compile=recipe.jit)
    return built


def optimizer(recipe: Recipe) -> keras.Optimizer:
    """The optimizer of a recipe."""
    arguments = recipe.optimizer.model_dump(exclude={"name"}, exclude_none=True)
    return keras.optimizers.get(
        {"class_name": recipe.optimizer.name, "config": arguments}
    )


def sampler(recipe: Recipe, train: data.ImageSet) -> data.Sampler:
    """The sampler of a recipe, bound to the training images."""
    arguments = recipe.batches.model_dump()
    method = recipe.method
    if isinstance(method, Division) and method.clusters:
        return data.ClusterSampler(
            train.labels,
            learners=method.clusters,
            schedule=method.schedule,
            fill=method.fill,
            seed=recipe.seed,
            **arguments,
        )
    if isinstance(method, ABE) and method.pair_batches:
        return data.PairSampler(
            train.labels,
            pairs=recipe.batches.classes * recipe.batches.images // 2,
            seed=recipe.seed,
            steps_per_epoch=recipe.batches.steps_per_epoch,
        )
    if isinstance(method, Diva) and "intra" in method.tasks:
        warn_without_triplets(train.labels, recipe.batches.images)
    return data.ClassBalanced(train.labels, seed=recipe.seed, **arguments)


def pipeline(
    recipe: Recipe,
    train: data.ImageSet,
    batches: data.Sampler,
    input_shape: Shape,
) -> tf.data.Dataset:
    """The training batches of a recipe for a model's input shape."""
    _, height, width, channels = input_shape
    return data.pipeline(
        train,
        batches,
        size=(height, width),
        channels=channels,
        seed=recipe.seed,
        **recipe.augmentation.model_dump(),
    )


def division(
    recipe: Recipe, train: data.ImageSet, batches: data.Sampler
) -> list[Recluster]:
    """The callback that a method's data division needs, if it has one."""
    method = recipe.method
    if not isinstance(method, Division) or not method.clusters:
        return []
    if not isinstance(batches, data.ClusterSampler):
        raise TypeError(f"{method.name} needs a ClusterSampler.")
    phases: list[Any] | None = method.phases
    return [
        Recluster(
            train,
            batches,
            every=method.every,
            partition=method.partition,
            cluster_space=method.cluster_space,
            phases=phases,
            seed=recipe.seed,
        )
    ]
