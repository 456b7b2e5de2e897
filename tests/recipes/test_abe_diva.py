"""What recipes of ABE and DiVA say of batches, views and networks."""

from pathlib import Path

import numpy as np
import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, load
from tests.recipes.builds import batches_of, model_of, sampler_of

ABE, DIVA = (
    Path(__file__).parents[2] / "recipes" / "glyphs" / f"{name}.yaml"
    for name in ("abe", "diva")
)
PAIRS = "method.pair_batches=true"


def test_the_recipe_makes_its_model() -> None:
    recipe = load(ABE, ("method.num_learners=2", "method.variant=heads"))
    model = model_of(recipe)
    assert len(model.head.ensemble.trunks) == 2
    assert model.compute_output_shape((None, 48, 48, 1)) == (None, 128)


def test_pair_batches_have_as_many_images_as_batches_say(images) -> None:
    settings = ("batches.classes_per_batch=6", "batches.images_per_class=2")
    recipe = load(ABE, (PAIRS, "method.pairs=constructed", *settings))
    sampler = sampler_of(recipe, images)
    assert isinstance(sampler, data.PairSampler)
    labels = images.labels[sampler.plan(0)]
    assert labels.shape[1] == 12
    same = labels[:, :6] == labels[:, 6:]
    assert np.all(same == [True] * 3 + [False] * 3)
    plain = sampler_of(load(ABE, settings), images)
    assert isinstance(plain, data.ClassBalanced)


def test_two_views_reach_the_pipeline() -> None:
    recipe = load(
        DIVA, ("batches={classes_per_batch: 2, images_per_class: 3}",)
    )
    pixels = np.zeros((12, 48, 48, 1), "uint8")
    images = data.ImageSet(pixels[..., 0], np.repeat(np.arange(4), 3))
    batches = sampler_of(recipe, images)
    dataset = batches_of(recipe, images, batches, (None, 48, 48, 1))
    assert set(dataset.element_spec[0]) == {"image", "image2"}


@pytest.mark.parametrize("setting", ["num_views=1", "num_views=3"])
def test_dance_needs_two_views(setting) -> None:
    with pytest.raises(RecipeError, match="`augmentation"):
        load(DIVA, (f"augmentation.{setting}",))
    load(DIVA, ("augmentation.num_views=1", "method.tasks=[shared, intra]"))


def test_a_momentum_network_on_smaller_images() -> None:
    half = "method.momentum_scale=0.5"
    encoder = model_of(load(DIVA, (half,))).momentum_encoder
    assert encoder.backbone.input_shape == (None, 24, 24, 1)
    with pytest.raises(RecipeError, match="requires a momentum network"):
        load(DIVA, (half, "method.tasks=[shared, intra]"))
    with pytest.raises(RecipeError, match="momentum_scale"):
        load(DIVA, ("method.momentum_scale=0.3",))


def test_batches_without_triplets_are_told_of(caplog) -> None:
    recipe = load(
        DIVA, ("batches={classes_per_batch: 2, images_per_class: 2}",)
    )
    labels = np.repeat(np.arange(4), 3)
    images = data.ImageSet(np.zeros((12, 48, 48), "uint8"), labels)
    sampler_of(recipe, images)
    assert 'task "intra"' in caplog.text
