"""`keras-dml index` and `keras-dml search`, from a run to a page."""

import shutil

import numpy as np
import pytest
from PIL import Image

from keras_dml.cli.commands.index import read_conditions
from keras_dml.search import Index
from tests.cli.test_commands import run
from tests.cli.test_evaluate import make_run
from tests.runs.small_run import METHODS, write_images, write_recipe


def plain(output: str) -> str:
    """Text whose lines are not cut by a table."""
    return " ".join(output.replace("│", " ").split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    recipe = write_recipe(folder)
    make_run(folder / "run", recipe, "data.validation=0.4", METHODS["baseline"])
    return folder


@pytest.fixture(scope="module")
def indexed(trained):
    output = run("index", str(trained / "run"), "test", "--output",
                 str(trained / "index"), "--calibrate",
                 str(trained / "images"))  # fmt: skip
    return trained / "index", output


@pytest.mark.slow
def test_index_of_a_split(indexed) -> None:
    folder, output = indexed
    assert "36" in output
    assert "of queries whose class is not in the gallery of 36" in plain(output)
    index = Index.load(folder)
    assert len(index) == 36
    assert set(index.columns) == {"path", "label", "name"}
    assert index.threshold.criterion == "fpir=0.01"
    assert index.threshold.gallery_rows == 36


def test_search_works_by_the_folder_alone(
    indexed, tmp_path, monkeypatch
) -> None:
    folder, _ = indexed
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    image = Index.load("copy").row(5)["path"]
    output = run("search", image, "--index", "copy", "-k", "3", "--html",
                 "page.html")  # fmt: skip
    assert "1.0000" in output
    assert "match" in output
    said = "of queries whose class is not in the gallery of 36 rows"
    assert said in plain(output)
    assert image in output.split()
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/jpeg") == 4
    assert said in page


@pytest.mark.slow
def test_paths_in_this_folder_are_relative(
    indexed, trained, monkeypatch
) -> None:
    folder, _ = indexed
    image = Index.load(folder).row(5)["path"]
    monkeypatch.chdir(trained)
    output = run("search", image, "--index", str(folder))
    assert image.removeprefix(f"{trained}/") in output.split()


@pytest.mark.slow
def test_where_and_threshold(indexed) -> None:
    folder, _ = indexed
    index = Index.load(folder)
    image, name = index.row(0)["path"], index.row(30)["name"]
    output = run("search", image, "--index", str(folder), "--where",
                 f"name={name}", "--threshold", "1.5", "-k", "2")  # fmt: skip
    assert output.count(name) >= 2
    assert "no match, because no score reaches 1.5000" in output
    label = index.row(30)["label"]
    output = run("search", image, "--index", str(folder), "--where",
                 f"label={label}", "-k", "2")  # fmt: skip
    assert name in output


@pytest.mark.slow
def test_index_of_folders_by_a_model_file(trained, tmp_path) -> None:
    more = write_images(tmp_path / "more", classes=2, images=2)
    output = run("index", str(trained / "run" / "best.keras"),
                 str(trained / "images"), str(more), "--output",
                 str(tmp_path / "i"), "--factory", "HNSW8_SQ8")  # fmt: skip
    assert "recall@10" in output
    index = Index.load(tmp_path / "i")
    assert index.factory == "HNSW8_SQ8"
    assert len(index) == 72 + 4
    # Classes are told apart by name, whatever folder they are in.
    assert index.row(72)["label"] == index.row(0)["label"]
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(flat / "a.png")
    run("index", str(trained / "run"), str(flat), "--output",
        str(tmp_path / "f"))  # fmt: skip
    assert list(Index.load(tmp_path / "f").columns) == ["path"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}", "test", "--output", "{index}"], "--overwrite"),
        (["{run}/best.keras", "test", "--output", "{new}"], "data of a run"),
        (["{run}", "nowhere", "--output", "{new}"], "nowhere"),
        (["{images}", "test", "--output", "{new}"], "no recipe.yaml"),
        (["{run}", "test", "--output", "{new}", "--factory", "X"], "'X'"),
        (["{run}", "test", "--output", "{new}", "--calibrate", "test",
          "--threshold", "fpr=x"], "fpr=x"),
        (["{run}", "test", "--output", "{new}", "--threshold", "fpir=2"],
         "fpir=2"),
        (["{run}", "test", "--output", "{new}", "--calibrate",
          "{images}/class_00"], "--calibrate must be images with a class"),
        (["{run}", "test", "--output", "{new}", "--calibrate", "nowhere"],
         "nowhere"),
        (["{run}", "test", "--output", "{new}", "--key", "nowhere"],
         "nowhere"),
        (["{run}", "test", "--output", "{new}", "--key", "label"],
         "must be unique"),
    ],
)  # fmt: skip
def test_index_refuses_before_images_are_embedded(
    arguments, message, indexed, trained, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("keras_dml.search.encoder.embedded", None)
    places = {
        "run": trained / "run",
        "index": indexed[0],
        "images": trained / "images",
        "new": tmp_path / "new",
    }
    filled = [x.format(**places) for x in arguments]
    output = run("index", *filled, code=1)
    assert message in " ".join(output.split())
    assert not (tmp_path / "new" / "index.json").exists()


@pytest.mark.slow
def test_four_classes_have_no_threshold(trained, tmp_path, caplog) -> None:
    few = tmp_path / "few"
    for name in ("crow", "jay", "rook", "wren"):
        shutil.copytree(trained / "images" / "class_00", few / name)
    run("index", str(trained / "run"), "test", "--output",
        str(tmp_path / "new"), "--calibrate", str(few))  # fmt: skip
    assert "at least 5 classes, better 20" in caplog.text
    assert f"Received: {few}, with 4" in caplog.text
    assert Index.load(tmp_path / "new").threshold is None


def test_search_refuses(indexed, tmp_path) -> None:
    folder, _ = indexed
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    output = run("search", str(bad), "--index", str(folder), code=1)
    assert "bad.png" in output
    output = run("search", str(bad), "--index", str(tmp_path), code=1)
    assert "no index" in output
    output = run("search", str(bad), "--index", str(folder), "--where",
                 "name", code=1)  # fmt: skip
    assert "column=value" in output


@pytest.mark.slow
def test_keys_metric_and_all(trained, tmp_path) -> None:
    folder = str(tmp_path / "i")
    output = run("index", str(trained / "run"), "test", "--output", folder,
                 "--key", "path", "--metric", "euclidean")  # fmt: skip
    assert "euclidean" in output
    index = Index.load(folder)
    assert index.keys == index.columns["path"]
    image = index.keys[4]
    label = index[image]["label"]
    output = run("search", image, "--index", folder, "--all", "--threshold",
                 "-1e-4", "--where", f"label>={label}")  # fmt: skip
    assert "0.0000" in output


COLUMNS = {"name": ["a", None], "price": [3, 2.5], "sold": [True, None],
           "any": ["1", 1]}  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["name=a", "name=b"], {"name": {"==": ["a", "b"]}}),
        (["name!=a=b"], {"name": {"!=": ["a=b"]}}),
        (["price>=2", "price<3.5"], {"price": {">=": 2, "<": 3.5}}),
        (["sold=False"], {"sold": {"==": [False]}}),
        (["any=1"], {"any": {"==": ["1", 1]}}),
        (["other=1"], {"other": {"==": ["1"]}}),
    ],
)
def test_conditions(texts, expected) -> None:
    assert read_conditions(texts, COLUMNS) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["name"], "column=value"),
        (["=a"], "column=value"),
        (["price>cheap"], "such as 3"),
        (["price>1", "price>2"], "once for a column"),
    ],
)
def test_conditions_that_are_refused(texts, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_conditions(texts, COLUMNS)
