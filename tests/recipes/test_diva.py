from pathlib import Path

import numpy as np
import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, building, load

RECIPE = Path(__file__).parents[2] / "recipes" / "glyphs" / "diva.yaml"


def test_two_views_reach_the_pipeline() -> None:
    recipe = load(
        RECIPE, ("batches={classes_per_batch: 2, images_per_class: 3}",)
    )
    pixels = np.zeros((12, 48, 48, 1), "uint8")
    images = data.ImageSet(pixels[..., 0], np.repeat(np.arange(4), 3))
    batches = building.sampler(recipe, images)
    dataset = building.pipeline(recipe, images, batches, (None, 48, 48, 1))
    assert set(dataset.element_spec[0]) == {"image", "image2"}


@pytest.mark.parametrize("setting", ["num_views=1", "num_views=3"])
def test_dance_needs_two_views(setting) -> None:
    with pytest.raises(RecipeError, match="`augmentation"):
        load(RECIPE, (f"augmentation.{setting}",))
    load(RECIPE, ("augmentation.num_views=1", "method.tasks=[shared, intra]"))


def test_a_momentum_network_on_smaller_images() -> None:
    half = "method.momentum_scale=0.5"
    encoder = building.model(load(RECIPE, (half,))).momentum_encoder
    assert encoder.backbone.input_shape == (None, 24, 24, 1)
    with pytest.raises(RecipeError, match="requires a momentum network"):
        load(RECIPE, (half, "method.tasks=[shared, intra]"))
    with pytest.raises(RecipeError, match="momentum_scale"):
        load(RECIPE, ("method.momentum_scale=0.3",))


def test_views_by_default_are_one_and_checked(tmp_path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: x\ndata: {name: glyphs}\nmethod: {name: diva}\n")
    with pytest.raises(RecipeError, match="num_views: 2"):
        load(path)


def test_unknown_auxiliary_loss_is_refused() -> None:
    with pytest.raises(RecipeError, match='auxiliary_loss.*"?margin'):
        load(RECIPE, ("method.auxiliary_loss=margn",))


def test_batches_without_triplets_are_told_of(caplog) -> None:
    recipe = load(
        RECIPE, ("batches={classes_per_batch: 2, images_per_class: 2}",)
    )
    labels = np.repeat(np.arange(4), 3)
    images = data.ImageSet(np.zeros((12, 48, 48), "uint8"), labels)
    building.sampler(recipe, images)
    assert 'task "intra"' in caplog.text
