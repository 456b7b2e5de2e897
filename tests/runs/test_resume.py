"""Runs that are killed, and go on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from keras_dml import recipes, runs
from keras_dml.recipes import RecipeError
from keras_dml.runs.folder import create_folder, last_folder
from tests.runs.small_run import write_images, write_recipe


@pytest.mark.slow
def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    write_images(tmp_path / "images", classes=24)
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.killed", recipe, tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert found.pop("statuses") == [0, -9, 75, 0]
    assert found.pop("number of rows") == 2
    left = found.pop("left")
    assert "state" not in left
    assert {x for x in left if x.startswith(".")} <= {".lock"}
    assert {"best.keras", "last.keras", "result.json"} <= {*left}
    assert found == dict.fromkeys(found, True)
    assert done.stderr.count("Could not write the state") == 1
    assert done.stderr.count("can be written to") == 1


def test_a_run_of_another_recipe_does_not_go_on(tmp_path: Path) -> None:
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
def test_a_finished_run_is_read(run_of) -> None:
    folder = run_of("baseline")
    before = {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}
    assert "state" not in before
    recipe = runs.load_recipe(folder)
    outcome = runs.train(recipe, folder, resume=True)
    assert outcome.after["recall@1"] >= 0
    assert before == {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}


def test_the_last_folder_of_a_name(tmp_path: Path) -> None:
    inside = str(tmp_path)
    assert last_folder("name", inside) == tmp_path / "name"
    for name in ("name", "name-2", "name-4"):
        (tmp_path / name).mkdir()
    assert last_folder("name", inside) == tmp_path / "name-2"
