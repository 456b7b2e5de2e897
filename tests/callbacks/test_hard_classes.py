"""HardClasses searches in due epochs, with the current model."""

import keras
import numpy as np
import pytest

from keras_dml import data, methods
from keras_dml.callbacks import HardClasses
from keras_dml.data.samplers.hard_classes import class_means, nearest_classes
from keras_dml.evaluation import embed
from keras_dml.recipes import RecipeError, validate
from tests.conftest import blobs
from tests.recipes.builds import callbacks_of, sampler_of


def parts(backbone, **arguments):
    images = blobs(classes=6, images=4)
    sampler = data.HardClassBalanced(
        images.labels, classes_per_batch=3, images_per_class=2, num_neighbors=1
    )
    model = methods.baseline(backbone, embedding_dim=4, loss="triplet")
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return images, sampler, model, HardClasses(images, sampler, **arguments)


@pytest.mark.slow
def test_neighbors_are_searched_in_due_epochs_by_the_current_model(
    tiny_backbone,
) -> None:
    images, sampler, model, callback = parts(tiny_backbone, every=2, start=1)
    seen = []

    class Record(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            x = embed(model, images)
            starts = np.arange(0, 24, 4)
            near = nearest_classes(class_means(x, np.arange(24), starts), 5)
            seen.append((sampler.neighbors, near))

    batches = data.pipeline(images, sampler, size=16)
    model.fit(batches, epochs=4, verbose=0, callbacks=[callback, Record()])
    assert seen[0][0] is None
    for epoch in (1, 3):
        np.testing.assert_array_equal(*seen[epoch])
    assert seen[2][0] is seen[1][0]
    assert callback.seconds > 0
    # A run that begins later searches at once, and plans what is due.
    again = HardClasses(images, sampler, every=2, start=1)
    again.set_model(model)
    again.on_epoch_begin(2)
    assert sampler.epoch == 2
    assert sampler.neighbors is not seen[3][0]


def test_unfit_arguments_raise(tiny_backbone) -> None:
    images, sampler, _, _ = parts(tiny_backbone)
    plain = data.ClassBalanced(images.labels, 3, 2)
    with pytest.raises(ValueError, match="must be a data.HardClassBalanced"):
        HardClasses(images, plain)
    with pytest.raises(ValueError, match="the images of `sampler`"):
        HardClasses(images.select([0, 1, 4, 5]), sampler)
    with pytest.raises(ValueError, match="`every`.*every=0"):
        HardClasses(images, sampler, every=0)


def test_recipe_builds_sampler_and_callback_of_hard_classes() -> None:
    content = {
        "name": "hard",
        "data": {"name": "glyphs"},
        "method": {"name": "baseline", "loss": "triplet"},
        "batches": {
            "classes_per_batch": 4,
            "images_per_class": 2,
            "hard_classes": {"num_neighbors": 2, "every": 3, "start": 1},
        },
    }
    recipe = validate(content, "here")
    images = blobs(classes=6, images=4)
    sampler = sampler_of(recipe, images)
    assert isinstance(sampler, data.HardClassBalanced)
    assert sampler.num_neighbors == 2
    (callback,) = callbacks_of(recipe, images, sampler)
    assert (callback.every, callback.start) == (3, 1)
    other_content = {**content, "method": {"name": "divide_and_conquer"}}
    with pytest.raises(RecipeError, match="makes its own batches"):
        validate(other_content, "here")
    content["batches"]["hard_classes"]["neighbours"] = 2
    with pytest.raises(RecipeError, match="num_neighbors"):
        validate(content, "here")
