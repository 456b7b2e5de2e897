"""Recipes train a step on noise, and embed.

test_recipe_files.py loads all recipes, and sees that these have all traits.
"""

import dataclasses
import functools
import gc
import inspect
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_dml import backbones, data, methods
from keras_dml.evaluation import embed
from keras_dml.recipes import Recipe, load, model_sections
from keras_dml.utils.types import FloatArray
from tests.recipes import stand_ins
from tests.recipes.builds import (
    batches_of,
    callbacks_of,
    data_of,
    model_of,
    sampler_of,
)
from tests.recipes.library import FILES, LAYERS, MORE, QUICK, WHOLE, name_of
from tests.recipes.library import recipe as recipe_at


@pytest.fixture(scope="module")
def noise() -> data.DataSplits:
    return stand_ins.noise()


@pytest.fixture(scope="module")
def glyphs() -> data.DataSplits:
    """Few classes of glyphs."""
    splits = data.glyphs()
    few = {
        name: part.select(np.isin(part.labels, part.classes[:6]))
        for name in ("train", "validation", "test")
        for part in [getattr(splits, name)]
    }
    return dataclasses.replace(splits, **few)


@pytest.fixture(autouse=True)
def stood_in(glyphs, noise, monkeypatch) -> Iterator[None]:
    stand_ins.stand_in(monkeypatch, "glyphs", lambda: glyphs)
    for name, entry in data.DATASETS.items():
        if "path" in inspect.signature(entry.value).parameters:
            stand_ins.stand_in(monkeypatch, name, lambda **_: noise)
    yield
    gc.collect()  # A model and its optimizer refer to each other.


@pytest.mark.parametrize(
    "path",
    [*QUICK, *(pytest.param(x, marks=pytest.mark.slow) for x in MORE)],
    ids=name_of,
)
def test_recipe_trains_a_step_and_embeds(path, tmp_path, monkeypatch) -> None:
    recipe = load(path)
    # ABE knows where to branch in the networks of this package.
    whole = path in WHOLE or names_layers(recipe) or recipe.method.name == "abe"
    get = functools.partial(stand_ins.backbone, whole=whole)
    monkeypatch.setattr(model_sections, "backbones", SimpleNamespace(get=get))
    settings = [
        "batches.classes_per_batch=4",
        f"batches.images_per_class={min(recipe.batches.images_per_class, 3)}",
        "batches.steps_per_epoch=1",
    ]
    if "path" in type(recipe.data).model_fields:
        settings += ["backbone.input_shape=[32, 32, 3]", "view.resize=36"]
    if recipe.method.name == "abe":
        settings += ["batches.images_per_class=2"]
    if recipe.method.name in ("abe", "dreml", "ensemble"):
        settings += ["method.num_learners=2"]
    if recipe.method.name == "distillation":
        settings += [f"method.teacher={teacher(tmp_path)}"]
    if recipe.method.name == "dreml":
        settings += ["method.num_meta_classes=2"]
    if recipe.method.name == "mic":
        settings += ["method.num_surrogates=4"]
    recipe = load(path, tuple(settings))
    splits = data_of(recipe)
    batches = sampler_of(recipe, splits.train)
    assert batches.steps == 1
    model = model_of(recipe, batches)
    # Tracing takes longer than a step. But without a graph, weights of the
    # losses of learners that are idle have no gradient, not even zeros.
    model.run_eagerly = not model.objective.learner_variables()
    before = probe(model)
    history = model.fit(
        batches_of(recipe, splits.train, batches, model.input_shape),
        epochs=1,
        callbacks=callbacks_of(recipe, splits.train, batches),
        verbose=0,
    )
    steps = int(recipe.method.name != "whitening")
    assert len(history.history.get("loss", ())) == steps
    assert np.isfinite(history.history.get("loss", ())).all()
    assert int(model.optimizer.iterations) == steps
    assert not np.array_equal(probe(model), before)
    embeddings = embed(model, splits.test.select([0, 5]))
    dim = recipe.method.embedding_dim
    assert embeddings.shape in ((2, dim), (2, dim // 3 * 3))
    np.testing.assert_allclose(
        np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-5
    )


@pytest.mark.slow
def test_layers_named_by_recipes_exist() -> None:
    networks: dict[str, set[str]] = {}
    for path in FILES:
        sections = recipe_at(path).backbone, recipe_at(path).method
        for key, section in itertools.product(LAYERS, sections):
            layer_names = getattr(section, key, None) or ()
            layer_names = (
                {layer_names}
                if isinstance(layer_names, str)
                else set(layer_names)
            )
            networks.setdefault(recipe_at(path).backbone.name, set()).update(
                layer_names
            )
    for name, layers in networks.items():
        if layers:
            network = stand_ins.backbone(
                name,
                whole=True,
                input_shape=(64, 64, 3),
                weights=None,
                freeze_batch_norm=False,
                freeze_until=None,
            )
            assert layers <= {x.name for x in network.layers}, name


LOADS = """
import sys
from pathlib import Path

from tensorflow.python.eager import context
from keras_dml.recipes import load

for path in sys.argv[1:]:
    load(path)
    assert not context.context()._initialized, path
load("glyphs/baseline", ("method.loss=own_losses:drawn",))
assert not context.context()._initialized
load("glyphs/baseline", ("method.loss=own_losses:valued",))
assert context.context()._initialized
from keras.src.backend.common.global_state import get_global_attribute
assert not get_global_attribute("uninitialized_variables")
"""

OWN_LOSSES = """
import keras
from keras_dml.losses import LOSSES, ContrastiveLoss

@LOSSES.register("drawn", "own")
class Drawn(ContrastiveLoss):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(1)

@LOSSES.register("valued", "own")
class Valued(ContrastiveLoss):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = keras.Variable(2.0)
"""


@pytest.mark.slow
def test_loading_recipes_leaves_devices_unset(tmp_path) -> None:
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES)
    subprocess.run(
        [sys.executable, "-c", LOADS, *map(str, [*QUICK, *MORE])],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        check=True,
    )


def teacher(folder: Path) -> Path:
    """A stand-in for the teacher's run that a recipe names."""
    path = folder / "teacher.keras"
    colored = backbones.small_convnet((48, 48, 3))
    methods.baseline(colored, embedding_dim=6).save(path)
    return path


def names_layers(recipe: Recipe) -> bool:
    """Whether the method needs layers of the network that the recipe names."""
    names = {"branch", "branches"}
    return bool(names & recipe.method.model_fields_set)


def probe(model: keras.Model) -> FloatArray:
    """Weights that every step changes."""
    return np.concatenate(
        [v.numpy().ravel()[:50] for v in model.head.trainable_variables]
    )
