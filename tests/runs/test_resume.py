"""Runs that are continued; tests/resuming has what a kill leaves."""

from pathlib import Path

import pytest

from keras_dml import recipes, runs
from keras_dml.recipes import RecipeError
from keras_dml.runs.folder import create_folder, last_folder
from tests.runs.small_run import write_recipe


def test_run_of_another_recipe_is_not_continued(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    folder = create_folder(tmp_path / "run", recipes.load(path))
    other = recipes.load(path, ["epochs=7", "method.embedding_dim=16"])
    with pytest.raises(RecipeError, match="cannot be continued") as raised:
        runs.train(other, folder, resume=True)
    assert "\n  epochs: 2 → 7\n" in str(raised.value)
    assert "\n  method.embedding_dim: 8 → 16\n" in str(raised.value)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(FileExistsError):
        runs.train(other, tmp_path / "photos", resume=True)


@pytest.mark.slow
def test_finished_run_is_read(run_of) -> None:
    folder = run_of("baseline")
    before = {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}
    assert "state" not in before
    recipe = runs.load_recipe(folder)
    outcome = runs.train(recipe, folder, resume=True)
    assert outcome.after["recall@1"] >= 0
    assert before == {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}


def test_last_folder_has_the_last_number(tmp_path: Path) -> None:
    inside = str(tmp_path)
    assert last_folder("name", inside) == tmp_path / "name"
    for name in ("name", "name-2", "name-4"):
        (tmp_path / name).mkdir()
    assert last_folder("name", inside) == tmp_path / "name-2"
