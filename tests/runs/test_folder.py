import pytest

from keras_dml import recipes, runs
from keras_dml.recipes import RecipeError
from tests.runs.small_run import write_recipe


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
    with pytest.raises(FileExistsError, match="exists already"):
        runs.create_folder(file, recipe, overwrite=True)
    assert (folder / "holiday.jpg").exists()
    assert file.read_text() == "precious"


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


def test_a_folder_without_a_run(tmp_path) -> None:
    with pytest.raises(RecipeError, match="not the folder of a run"):
        runs.load_recipe(tmp_path)


def test_a_run_without_a_model(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no best.keras"):
        runs.load_model(tmp_path)
