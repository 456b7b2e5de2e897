"""A run to report on that is made to break pages."""

from pathlib import Path

import pytest

from keras_dml import recipes, runs
from tests.runs.small_run import QUICK, write_recipe

HOSTILE = "</script><img src=x onerror=document.title='broken'>"
"""A name that would break a page that did not escape it."""


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
