"""How a recipe's images are resized, in training and for the test."""

from pathlib import Path

import numpy as np

from keras_dml.data import ImageSet, View
from keras_dml.recipes import dump, load
from tests.data.small_images import LABELS, noise
from tests.recipes.builds import batches_of, model_of, sampler_of

RECIPE = Path(__file__).parents[2] / "recipes" / "glyphs" / "baseline.yaml"
SETTINGS = (
    "augmentation.resize=20",
    "augmentation.resize_mode=longest",
    "augmentation.crop=center",
    "augmentation.pad=0",
    "augmentation.flip=false",
    "backbone.input_shape=[16, 16, 1]",
    "batches.classes_per_batch=3",
    "batches.images_per_class=2",
    "view.resize=18",
    "view.resize_mode=squash",
)


def test_training_and_test_are_resized_as_the_recipe_says() -> None:
    images = ImageSet(noise(24, 13), LABELS)
    recipe = load(RECIPE, SETTINGS)
    model = model_of(recipe)
    assert View.of(model) == View((16, 16), 1, 18, "squash")
    sampler = sampler_of(recipe, images)
    batches = batches_of(recipe, images, sampler, model.input_shape)
    padded = View((16, 16), 1, 20, "longest").apply(images.images).numpy()
    assert not np.any(padded[:, :, 0]) and np.any(padded[:, 0])
    for x, y in batches.as_numpy_iterator():
        np.testing.assert_array_equal(x, padded[y["index"]])


def test_the_view_is_set_once(tmp_path) -> None:
    """Training resizes as the test does, also by a recipe that was dumped."""
    recipe = load(RECIPE, ("view={resize: 56, resize_mode: longest}",))
    seen = recipe.augmentation
    assert (seen.resize, seen.resize_mode) == (56, "longest")
    (tmp_path / "dumped.yaml").write_text(dump(recipe))
    assert load(tmp_path / "dumped.yaml") == recipe
    settings = ("view.resize=56", "augmentation.resize=null")
    raw = load(RECIPE, settings)
    assert (raw.view.resize, raw.augmentation.resize) == (56, None)
