import os
import random
from pathlib import Path

import pytest

from keras_dml import recipes, runs
from keras_dml.recipes import Recipe, RecipeError
from keras_dml.runs.benchmark.plan import Run
from keras_dml.runs.folder import load_outcome
from tests.runs.benchmark import stub
from tests.runs.small_run import write_recipe
from tests.search.test_mutations import changed


def finish(folder: Path, recipe: Recipe) -> None:
    stub.finish(Run(recipe, folder))


@pytest.fixture
def recipe(tmp_path):
    return recipes.load(write_recipe(tmp_path))


def test_a_run_is_replaced_only_when_asked(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    (folder / "best.keras").write_text("precious")
    with pytest.raises(FileExistsError, match="--overwrite"):
        runs.create_folder(folder, recipe)
    assert (folder / "best.keras").read_text() == "precious"
    (folder / "more").mkdir()
    (folder / "more" / "file").write_text("old")
    runs.create_folder(folder, recipe, overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["recipe.yaml"]


def test_what_is_no_run_is_never_removed(recipe, tmp_path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "holiday.jpg").write_text("precious")
    with pytest.raises(FileExistsError, match="another --output"):
        runs.create_folder(folder, recipe, overwrite=True)
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(FileExistsError, match="already exists"):
        runs.create_folder(file, recipe, overwrite=True)
    assert (folder / "holiday.jpg").exists()
    assert file.read_text() == "precious"


def test_a_run_that_is_not_finished_may_go_on(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    (folder / "state").mkdir()
    with pytest.raises(FileExistsError, match="Use --resume to continue it"):
        runs.create_folder(folder, recipe)


def test_an_empty_folder_will_do(recipe, tmp_path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert runs.create_folder(folder, recipe) == folder


def test_a_free_name_is_found(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for expected in ("small", "small-2", "small-3"):
        folder = runs.free_folder("small")
        assert folder.name == expected
        folder.mkdir(parents=True)


def test_a_run_without_a_model(recipe, tmp_path) -> None:
    with pytest.raises(RecipeError, match="not the folder of a run"):
        runs.load_model(tmp_path)
    folder = runs.create_folder(tmp_path / "run", recipe)
    with pytest.raises(FileNotFoundError, match="no best.keras"):
        runs.load_model(folder)


DAMAGES = {
    "an empty result": ("result.json", b""),
    "half a result": ("result.json", b'{"images": {"tr'),
    "a list": ("result.json", b"[1, 2]"),
    "other keys": ("result.json", b'{"a": 1}'),
    "deep nesting": ("result.json", b"[" * 100_000),
    "bytes": ("result.json", b"\xff\xfe"),
    "no archive": ("queries.npz", b"PK\x03\x04 no more"),
    "empty queries": ("queries.npz", b""),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_result_is_named(name, recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    finish(folder, recipe)
    assert load_outcome(folder).recipe == recipe
    file, content = DAMAGES[name]
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"The result of the run .*/run'"):
        load_outcome(folder)


def test_a_result_that_is_no_file(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    finish(folder, recipe)
    (folder / "result.json").unlink()
    os.mkfifo(folder / "result.json")
    with pytest.raises(OSError, match="it is a pipe or a device"):
        load_outcome(folder)


def test_queries_with_random_changes(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    finish(folder, recipe)
    before, draw = load_outcome(folder), random.Random(0)
    path = folder / "queries.npz"
    whole = path.read_bytes()
    outcomes = set()
    for _ in range(20):
        path.write_bytes(changed(whole, draw))
        try:
            after = load_outcome(folder).after
            outcomes.add("read")
        except ValueError as error:
            assert str(folder) in str(error)
            outcomes.add("refused")
        else:
            assert dict(after) == dict(before.after)
    assert "refused" in outcomes
