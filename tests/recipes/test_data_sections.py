"""Tests of the recipes' sections on data."""

import inspect
from typing import Any

import numpy as np
import pytest

from keras_dml import data
from keras_dml.recipes import RecipeError, dump, load
from keras_dml.recipes.files import validate
from tests.conftest import blobs
from tests.data.small_images import LABELS, noise
from tests.recipes.builds import batches_of, data_of, model_of, sampler_of
from tests.recipes.stand_ins import stand_in


def recipe_of(section: dict[str, Any]) -> Any:
    content = {
        "name": "run",
        "seed": 5,
        "data": section,
        "method": {"name": "baseline"},
    }
    return validate(content, "recipe.yaml")


@pytest.mark.parametrize("name", data.DATASETS)
def test_sections_call_their_loaders(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaders get their keys, and the recipe's seed if they take one."""
    parameters = inspect.signature(data.DATASETS[name].value).parameters
    stand_in(monkeypatch, name, lambda **arguments: arguments)
    path = {"path": "somewhere"} if "path" in parameters else {}
    recipe = recipe_of({"name": name, **path})
    keys = recipe.data.model_dump(exclude={"name"})
    seed = {"seed": 5} if "seed" in parameters else {}
    assert data_of(recipe) == {**keys, **path, **seed}


def test_declared_loader_is_a_recipe_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data.DATASETS, "_entries", dict(data.DATASETS))

    @data.dataset("twos", "pairs of images")
    def twos(count: int, seed: int = 0) -> data.DataSplits:
        raise ValueError(f"{count=} {seed=}")

    assert data.twos is twos
    recipe = recipe_of({"name": "twos", "count": 7})
    with pytest.raises(ValueError, match="count=7 seed=5"):
        data_of(recipe)
    with pytest.raises(RecipeError, match="`data.count` is missing"):
        recipe_of({"name": "twos"})


PHOTOGRAPHS = "photographs"


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ((), True),
        (("batches.images_per_class=2",), True),
        (("batches.classes_per_batch=8",), False),
        (("batches={classes_per_batch: 8, images_per_class: 2}",), False),
        (
            ("batches.classes_per_batch=8", "batches.fewer_classes=true"),
            True,
        ),
    ],
)
def test_package_defaults_may_have_fewer_classes(
    settings, may, tmp_path
) -> None:
    recipe = load(PHOTOGRAPHS, settings)
    assert recipe.batches.fewer_classes is may
    (tmp_path / "again.yaml").write_text(dump(recipe))
    assert load(tmp_path / "again.yaml") == recipe
    recipe_file = tmp_path / "own.yaml"
    recipe_file.write_text(
        "base: photographs\nbatches: {classes_per_batch: 8}\n"
    )
    assert load(recipe_file).batches.fewer_classes is False
    recipe_file.write_text(
        "base: photographs\nbatches: {images_per_class: 8}\n"
    )
    assert load(recipe_file).batches.fewer_classes is True


@pytest.mark.parametrize(
    "method",
    [
        "method={name: baseline, loss: contrastive}",
        "method={name: divide_and_conquer, num_learners: 2, loss: triplet}",
        "method={name: mic}",
        "batches.hard_classes={}",
    ],
)
def test_batches_shrink_to_few_classes(method, caplog) -> None:
    train = blobs(5, 6)
    recipe = load(PHOTOGRAPHS, (method,))
    assert recipe.batches.classes_per_batch == 16
    batches = sampler_of(recipe, train)
    assert batches.classes_per_batch == 5
    assert batches.batch_size == 5 * recipe.batches.images_per_class
    if "baseline" in method:
        for rows in batches.plan(0):
            assert len(np.unique(train.labels[rows])) == 5
    assert caplog.text.count("Batches have 5 classes instead of 16") == 1
    asked = load(PHOTOGRAPHS, (method, "batches.classes_per_batch=6"))
    with pytest.raises(ValueError, match="Use batches.classes_per_batch=5,"):
        sampler_of(asked, train)


def test_batches_shrink_to_few_labels() -> None:
    tagged = blobs(6, 4).with_labels(np.eye(3, dtype=bool)[np.arange(24) % 3])
    method = "method={name: baseline, loss: contrastive}"
    recipe = load(PHOTOGRAPHS, (method,))
    assert sampler_of(recipe, tagged).classes_per_batch == 3
    asked = load(PHOTOGRAPHS, (method, "batches.classes_per_batch=4"))
    with pytest.raises(ValueError, match="with at least 2 images, 3"):
        sampler_of(asked, tagged)


RESIZED = (
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


def test_training_and_test_are_resized_by_the_recipe() -> None:
    images = data.ImageSet(noise(24, 13), LABELS)
    recipe = load("glyphs/baseline", RESIZED)
    model = model_of(recipe)
    assert data.View.of(model) == data.View((16, 16), 1, 18, "squash")
    sampler = sampler_of(recipe, images)
    batches = batches_of(recipe, images, sampler, model.input_shape)
    view = data.View((16, 16), 1, 20, "longest")
    padded = view.apply(images.images).numpy()
    assert not np.any(padded[:, :, 0]) and np.any(padded[:, 0])
    for x, y in batches.as_numpy_iterator():
        np.testing.assert_array_equal(x, padded[y["index"]])


def test_training_takes_the_view_of_the_test(tmp_path) -> None:
    """Training resizes like the test, also after the recipe was dumped."""
    setting = "view={resize: 56, resize_mode: longest}"
    recipe = load("glyphs/baseline", (setting,))
    seen = recipe.augmentation
    assert (seen.resize, seen.resize_mode) == (56, "longest")
    (tmp_path / "dumped.yaml").write_text(dump(recipe))
    assert load(tmp_path / "dumped.yaml") == recipe
    settings = ("view.resize=56", "augmentation.resize=null")
    raw = load("glyphs/baseline", settings)
    assert (raw.view.resize, raw.augmentation.resize) == (56, None)
