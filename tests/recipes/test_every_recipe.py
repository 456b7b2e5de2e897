"""Every recipe makes its batches and its model of an archive of noise.

One of all that differ in numbers only trains a step, and embeds.
"""

import dataclasses
import functools
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import backbones, data, methods
from keras_dml.evaluation import embed
from keras_dml.recipes import Recipe, building, load
from keras_dml.utils.types import FloatArray
from tests.recipes import stand_ins

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted(RECIPES.rglob("[!_]*.yaml"))
# One with each method is not slow.
QUICK = [RECIPES / "glyphs" / f"{name}.yaml" for name in methods.METHODS]
# Networks that are not ours, in full depth: all, upper, and lower layers.
WHOLE = [
    RECIPES / "cub200" / "baseline.yaml",
    RECIPES / "emoji" / "upper_baseline.yaml",
    RECIPES / "emoji" / "lower_baseline.yaml",
]


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    """A folder for each format."""
    root = tmp_path_factory.mktemp("archives")
    for name in stand_ins.WRITERS:
        stand_ins.write_archive(name, root / name)
    return root


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


@pytest.fixture(scope="module")
def built() -> set[str]:
    """What recipes said of which there was a model."""
    return set()


@pytest.fixture(autouse=True)
def stood_in(glyphs, monkeypatch) -> Iterator[None]:
    loaders = {"glyphs": lambda: glyphs, **stand_ins.LOADERS}
    for name, loader in loaders.items():
        stand_ins.stand_in(monkeypatch, name, loader)
    yield
    gc.collect()  # A model and its optimizer refer to each other.


def test_every_method_has_a_recipe() -> None:
    assert set(QUICK) <= set(FILES)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path in QUICK else pytest.mark.slow)
        for path in FILES
    ],
    ids=lambda path: str(path.relative_to(RECIPES)),
)
def test_trains_a_step_and_embeds(path, archives, built, monkeypatch) -> None:
    recipe = load(path)
    whole = path in WHOLE or names_layers(recipe)
    get = functools.partial(stand_ins.backbone, whole=whole)
    monkeypatch.setattr(building, "backbones", SimpleNamespace(get=get))
    settings = [
        "batches.classes_per_batch=4",
        f"batches.images_per_class={min(recipe.batches.images_per_class, 3)}",
        "batches.steps_per_epoch=1",
    ]
    if "path" in type(recipe.data).model_fields:
        place = archives / recipe.data.name
        if recipe.data.name == "table":
            place /= "table.csv"
        settings += [f"data.path={place}"]
        settings += ["backbone.input_shape=[32, 32, 3]", "view.resize=36"]
        if recipe.holds_out and recipe.data.validation > 0.2:
            settings += ["data.validation=0.2"]
        if recipe.data.name == "image_folder":
            settings += ["data.train_classes=0.5"]
    if recipe.method.name == "abe":
        settings += ["batches.images_per_class=2"]
    if recipe.method.name == "distillation":
        settings += [f"method.teacher={teacher(archives)}"]
    if recipe.method.name == "dreml":
        settings += ["method.num_meta_classes=2"]
    if recipe.method.name == "mic":
        settings += ["method.num_surrogates=4"]
    recipe = load(path, tuple(settings))
    splits = building.splits(recipe)
    batches = building.sampler(recipe, splits.train)
    assert batches.steps == 1
    is_trained = path in one_of_each_kind()
    if not is_trained and said(recipe) in built:
        return
    model = building.model(recipe, batches)
    built.add(said(recipe))
    if not is_trained:
        return
    # Tracing takes longer than a step. But without a graph, weights of the
    # losses of learners that are idle have no gradient, not even zeros.
    model.run_eagerly = not model.objective.learner_variables()
    before = probe(model)
    history = model.fit(
        building.pipeline(recipe, splits.train, batches, model.input_shape),
        epochs=1,
        callbacks=building.callbacks(recipe, splits.train, batches),
        verbose=0,
    )
    assert np.isfinite(history.history["loss"]).all()
    assert int(model.optimizer.iterations) == 1
    assert not np.array_equal(probe(model), before)
    embeddings = embed(model, splits.test.select([0, 5]))
    dim = recipe.method.embedding_dim
    assert embeddings.shape in ((2, dim), (2, dim // 3 * 3))
    np.testing.assert_allclose(
        np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-5
    )


LOADS_ALL = """
import sys
from pathlib import Path

from tensorflow.python.eager import context
from keras_dml.distribution import connect
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
def test_loading_leaves_devices_and_workers_to_be_set(tmp_path) -> None:
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES)
    subprocess.run(
        [sys.executable, "-c", LOADS_ALL, *map(str, FILES)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        check=True,
    )


def teacher(folder: Path) -> Path:
    """A model that stands in for that of the run which a recipe names."""
    path = folder / "teacher.keras"
    if not path.exists():
        colored = backbones.small_convnet((48, 48, 3))
        methods.baseline(colored, embedding_dim=6).save(path)
    return path


@functools.cache
def one_of_each_kind() -> set[Path]:
    """Recipes that, data, metrics and numbers aside, say different things.

    Of those that say the same, data sets take turns.
    """
    kinds: dict[str, list[Path]] = {}
    for path in FILES:
        kind = without_numbers(json.loads(said(load(path))))
        kinds.setdefault(json.dumps(kind), []).append(path)
    return {
        paths[number % len(paths)]
        for number, paths in enumerate(kinds.values())
    } | {*QUICK, *WHOLE}


def names_layers(recipe: Recipe) -> bool:
    """Whether the method needs layers of the network that the recipe names."""
    names = {"branch", "branches"}
    return bool(names & recipe.method.model_fields_set)


def said(recipe: Recipe) -> str:
    """What a recipe says, but for data and metrics."""
    return recipe.model_dump_json(exclude={"name", "data", "evaluation"})


def without_numbers(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: without_numbers(value) for key, value in x.items()}
    if isinstance(x, list):
        return [without_numbers(value) for value in x]
    is_number = isinstance(x, int | float) and not isinstance(x, bool)
    return 0 if is_number else x


def probe(model: keras.Model) -> FloatArray:
    """Some of the weights that every step moves."""
    return np.concatenate(
        [v.numpy().ravel()[:50] for v in model.head.trainable_variables]
    )
