"""What a recipe trains on: data, batches, and views of images."""

import inspect
import logging
from dataclasses import replace
from typing import Any, Self

import keras
import numpy as np
from pydantic import field_validator, model_validator

from keras_dml import callbacks, data
from keras_dml.data.augmentations import as_steps
from keras_dml.methods.declaration import Arguments
from keras_dml.model.generated import takes_images
from keras_dml.recipes.sections import NamedSection, Section, keys_of
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Count, Shape

logger = logging.getLogger(__name__)

_MAX_EPOCH_IMAGES = 2**28
"""Maximum number in an epoch, whose rows are planned in memory."""


class Data(NamedSection):
    """A data set of `keras_dml.data.DATASETS`."""

    def load(self, seed: int, train_on: str = "train") -> data.DataSplits:
        """Loads train, validation and test classes.

        With `train_on="all"`, validation classes are training classes, too.
        """
        loader = data.DATASETS[self.name].value
        arguments = self.model_dump(exclude={"name"})
        if "seed" in inspect.signature(loader).parameters:
            arguments["seed"] = seed
        splits = loader(**arguments)
        if train_on == "all":
            none = splits.validation.select([])
            return replace(splits, train=splits.trainval, validation=none)
        return splits


@keys_of(data.HardClassBalanced, ("num_neighbors",))
@keys_of(callbacks.HardClasses, ("every", "start"))
class HardClasses(Section):
    """Batches of classes that are near each other.

    See `keras_dml.data.HardClassBalanced` and
    `keras_dml.callbacks.HardClasses`.
    """


@keys_of(data.ClassBalanced, ("images_per_class", "steps_per_epoch"))
class Batches(Section):
    """Batches of `images_per_class` images from `classes_per_batch` classes.

    With `fewer_classes`, batches have all training classes if these are fewer.
    It is true for a number of classes that comes with the package, and false
    for one of your own, unless you say otherwise.
    """

    classes_per_batch: Count = 32
    fewer_classes: bool = True
    hard_classes: HardClasses | None = None

    @model_validator(mode="after")
    def _epoch_fits(self) -> Self:
        images = self.classes_per_batch * self.images_per_class
        if images * (self.steps_per_epoch or 1) > _MAX_EPOCH_IMAGES:
            raise ValueError(
                f"an epoch must have at most {_MAX_EPOCH_IMAGES:,} images"
            )
        return self

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments that every sampler of balanced batches takes."""
        return self.model_dump(exclude={"hard_classes", "fewer_classes"})

    def fit(self, arguments: Arguments, train: data.Examples) -> Arguments:
        """Limits a sampler's arguments to the classes that there are."""
        num_classes = arguments.get("classes_per_batch", 0)
        min_images = min(2, self.images_per_class)
        if train.has_label_sets and train.labels is not None:
            counts = train.labels.sum(axis=0)
        else:
            counts = np.unique(train.known_labels, return_counts=True)[1]
        max_classes = int(np.sum(counts >= min_images))
        # Without any class, the sampler raises an error.
        if num_classes <= max_classes or not max_classes:
            return arguments
        if not self.fewer_classes:
            raise ValueError(
                "`batches.classes_per_batch` of a recipe must not exceed the "
                f"number of training classes with at least {min_images} "
                f"images, {max_classes}. Received: {num_classes}. Use "
                f"batches.classes_per_batch={max_classes}, or leave it out to "
                "have as many as there are."
            )
        logger.warning(
            "Batches have %d classes instead of %d, because no more training "
            "classes have %d images or more.",
            max_classes,
            num_classes,
            min_images,
        )
        return {**arguments, "classes_per_batch": max_classes}


@keys_of(data.View, ("resize", "resize_mode", "fast"))
class View(Section):
    """Preprocessing of images for the model; see `keras_dml.data.View`.

    Random crops for training are taken from images resized in the same way,
    unless `augmentation` says otherwise.
    """

    def build(self, backbone: keras.Model) -> data.View | None:
        """The view of a model, if its backbone takes images."""
        if takes_images(backbone):
            _, height, width, channels = backbone.input_shape
            return data.View((height, width), channels, **self.model_dump())
        if self != type(self)():
            raise ValueError(
                "`view` of a recipe requires a backbone that takes images. "
                f"Received: {self.model_dump()} and a backbone that takes "
                f"{backbone.input_shape}. Leave it out."
            )
        return None


@keys_of(
    data.pipeline,
    (
        "resize", "resize_mode", "crop", "flip", "pad", "augment",
        "augment_by", "num_views", "cache",
    ),
)  # fmt: skip
class Augmentation(Section):
    """See `keras_dml.data.pipeline`.

    By default, `resize` and `resize_mode` are those of the recipe's `view`;
    with `resize: null`, crops are taken from the original images. `augment`
    lists Keras layers with their arguments.
    """

    @field_validator("augment", check_fields=False)
    @classmethod
    def _layers_are_known(cls, augment: Any) -> Any:
        if augment is not None:
            as_steps(augment)
        return augment

    def pipeline(
        self,
        train: data.Examples,
        sampler: data.Sampler,
        input_shape: Shape,
        seed: int,
    ) -> tf.data.Dataset:
        """The training batches for a model's input shape."""
        views = self.model_dump()
        if isinstance(train, data.FeatureSet):
            views = {"num_views": views["num_views"]}
        elif isinstance(train, data.ImageSet):
            _, height, width, channels = input_shape
            views |= {"size": (height, width), "channels": channels}
        return data.pipeline(train, sampler, seed=seed, **views)
