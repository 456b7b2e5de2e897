"""Finished runs to report on, each trained in a second."""

from collections.abc import Callable
from pathlib import Path

import keras
import pytest

from keras_dml import recipes, runs
from tests.runs.small_run import write_recipe

METHODS = {
    "baseline": "method={name: baseline, loss: contrastive, embedding_dim: 8}",
    "divide_and_conquer": "name=divided",
    "attentive_grouping": "method={name: attentive_grouping, embedding_dim: 8, "
    "num_groups: 2, loss: contrastive}",
    "abe": "method={name: abe, embedding_dim: 8, num_learners: 2, "
    "branch: relu_1, attention_end: relu_2}",
    "dcml": "method={name: dcml, embedding_dim: 8, num_learners: 2, "
    "num_compositors: 3, loss: contrastive}",
}

QUICK = ("epochs=1", "evaluation.metrics=[recall@1, map@r]")

HOSTILE = "</script><img src=x onerror=document.title='broken'>"
"""A name that would break a page that did not escape it."""


@pytest.fixture(scope="session")
def run_of(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a run of a method."""
    made: dict[str, Path] = {}

    def make(method: str) -> Path:
        if method not in made:
            folder = tmp_path_factory.mktemp(method)
            path = write_recipe(folder)
            settings = (METHODS[method], *QUICK)
            recipe = recipes.load(path, settings)
            made[method] = folder / "run"
            policy = keras.config.dtype_policy()
            runs.train(recipe, made[method], verbose=0)
            keras.config.set_dtype_policy(policy)
        return made[method]

    return make


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory) -> Path:
    """A run whose classes, files and name are made to break a page."""
    folder = tmp_path_factory.mktemp("hostile")
    path = write_recipe(folder)
    for number, images in enumerate(sorted((folder / "images").iterdir())):
        # A file name may hold anything but a slash.
        name = HOSTILE.replace("/", "\\") + f" & {number}"
        images.rename(images.with_name(name))
    recipe = recipes.load(path, QUICK)
    recipe = recipe.model_copy(update={"name": HOSTILE})
    runs.train(recipe, folder / "run", verbose=0)
    return folder / "run"
