"""Builds single parts of a recipe for tests."""

import keras
import numpy as np

from keras_dml import data
from keras_dml.model import MetricModel
from keras_dml.recipes import Recipe
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Shape

TWO_CLASSES = data.ClassBalanced(
    np.repeat([0, 1], 2), classes_per_batch=2, images_per_class=2
)
"""A sampler for models that depend on no training set."""


def data_of(recipe: Recipe) -> data.DataSplits:
    return recipe.data.load(recipe.seed, recipe.train_on)


def sampler_of(recipe: Recipe, train: data.Examples) -> data.Sampler:
    return recipe.method.sampler(train, recipe.batches, recipe.seed)


def model_of(
    recipe: Recipe, sampler: data.Sampler = TWO_CLASSES
) -> MetricModel:
    return recipe.build(sampler)


def batches_of(
    recipe: Recipe, train: data.Examples, sampler: data.Sampler, shape: Shape
) -> tf.data.Dataset:
    train = recipe.method.number_classes(train)
    return recipe.augmentation.pipeline(train, sampler, shape, recipe.seed)


def callbacks_of(
    recipe: Recipe, train: data.Examples, sampler: data.Sampler
) -> list[keras.callbacks.Callback]:
    train = recipe.method.number_classes(train)
    return recipe.method.callbacks(train, sampler, recipe.batches, recipe.seed)
