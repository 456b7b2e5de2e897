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
    """Text without the line breaks of a table."""
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
def test_split_is_indexed_with_columns_and_threshold(indexed) -> None:
    folder, output = indexed
    assert "36" in output
    assert "of queries whose class is not in the gallery of 36" in plain(output)
    index = Index.load(folder)
    assert len(index) == 36
    assert set(index.columns) == {"path", "label", "name"}
    assert index.threshold.criterion == "fpir=0.01"
    assert index.threshold.gallery_rows == 36


def test_search_needs_only_the_folder(indexed, tmp_path, monkeypatch) -> None:
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
def test_search_heeds_where_and_threshold(indexed) -> None:
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
def test_folders_are_indexed_by_a_model_file(trained, tmp_path) -> None:
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
def test_unfit_arguments_of_index_raise_before_embedding(
    arguments, message, indexed, trained, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("keras_dml.search.encoder.embed_argument", None)
    paths = {
        "run": trained / "run",
        "index": indexed[0],
        "images": trained / "images",
        "new": tmp_path / "new",
    }
    filled = [x.format(**paths) for x in arguments]
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
    assert "keras-dml search --threshold 0.6" in caplog.text
    index = Index.load(tmp_path / "new")
    assert index.threshold is None
    # Both ways out from the message work.
    image = index.row(0)["path"]
    output = run("search", image, "--index", str(tmp_path / "new"),
                 "--threshold", "0.6")  # fmt: skip
    assert f"{image}: match" in " ".join(output.split())
    shutil.copytree(few / "crow", few / "owl")
    run("index", str(trained / "run"), "test", "--output",
        str(tmp_path / "again"), "--calibrate", str(few))  # fmt: skip
    assert Index.load(tmp_path / "again").threshold.num_classes == 5


@pytest.mark.slow
def test_recall_is_measured_on_the_users_queries(trained, tmp_path) -> None:
    folder = str(tmp_path / "i")
    output = run("index", str(trained / "run"), "test", "--output", folder,
                 "--factory", "HNSW8", "--queries", "validation")  # fmt: skip
    recall = Index.load(folder).recall
    assert recall.source == "queries of your own"
    assert f"{recall.queries} queries of your own" in " ".join(output.split())


def test_unfit_arguments_of_search_raise(indexed, tmp_path) -> None:
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
def test_keys_metric_and_all_are_heeded(trained, tmp_path) -> None:
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


@pytest.fixture(scope="module")
def shop(trained):
    """A model, four images of two classes, and two of another class."""
    first = write_images(trained / "first", classes=2, images=2)
    more = trained / "more" / "new"
    more.mkdir(parents=True)
    for name in ("a.png", "b.png"):
        shutil.copy(trained / "images" / "class_09" / "054.png", more / name)
    return str(trained / "run" / "best.keras"), str(first), str(more.parent)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "path"])
@pytest.mark.parametrize("command", [(), ("build",)])
def test_images_are_added_and_removed(command, key, shop, tmp_path) -> None:
    model, first, more = shop
    place = str(tmp_path / "i")
    keyed = [] if key is None else ["--key", key]
    run("index", *command, model, first, "--output", place, *keyed)
    before = Index.load(place)
    # The column of the keys is that of `build`.
    assert "Added 2 images" in run("index", "add", place, more)
    index = Index.load(place)
    np.testing.assert_array_equal(index.embeddings[:4], before.embeddings)
    assert index.columns["name"][4:] == ["new", "new"]
    assert len({*index.columns["label"]}) == 3
    new = index.columns["path"][4:]
    assert index.keys[4:] == ([4, 5] if key is None else new)
    hits = index.search(new[:1], 2)[0]
    assert {hit.row["path"] for hit in hits} == set(new)
    if key is not None:
        said = run("index", "add", place, more, "--key", key, code=1)
        assert "already exists" in said
        said = run("index", "add", place, more, "--replace")
        assert "2 for others: 6 images" in said
    keys = [str(x) for x in Index.load(place).keys]
    said = run("index", "remove", place, "--key", keys[0], "--key", "x", code=1)
    assert "Received: 'x'." in plain(said)
    assert len(Index.load(place)) == 6
    assert "Removed 2 from" in run(
        "index", "remove", place, "--key", keys[0], "--key", keys[5]
    )
    run("index", "remove", place, "--where", "name=new")
    index = Index.load(place)
    assert [str(x) for x in index.keys] == keys[1:4]
    # It still has its model.
    assert len(index.search(new[:1], 1)[0]) == 1


@pytest.mark.slow
def test_index_without_a_model_adds_images_with_model_of(
    shop, tmp_path
) -> None:
    model, first, more = shop
    place = str(tmp_path / "i")
    run("index", model, first, "--output", place)
    index = Index.load(place)
    index.save(place, include_model=False)
    assert "without a model" in run("index", "add", place, more, code=1)
    run("index", "add", place, more, "--model-of", model)
    assert len(Index.load(place)) == 6
    assert "without a model" in run("index", "add", place, more, code=1)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 2, "Commands:"),
        ("remove {index}", 2, "Use either --key or --where."),
        ("remove {index} --key 1 --where name=a", 2, "--key or --where."),
        ("remove {index} --key nowhere", 1, "Received: 'nowhere'."),
        ("remove {index} --where name", 1, "column=value"),
        ("remove {images} --key 1", 1, "no index"),
        ("add {index}", 2, "Missing argument 'DATA...'"),
        ("add {index} test", 1, "requires the data of a run"),
        ("add {index} {images} --key price", 1, "path, label, name"),
        ("add {index} {images} --key path", 1, "rows have only ids"),
        ("add {index} {images} --replace", 1, "requires `keys`"),
        ("add {images} {images}", 1, "no index"),
        ("add nowhere {images}", 2, "does not exist"),
        ("--overwrite {run} nowhere --output {index}", 1, "'nowhere'"),
        ("{run} test --precision int8", 2, "Use a factory string"),
    ],
)
def test_unfit_arguments_of_index_commands_raise(
    words, code, message, indexed, trained
) -> None:
    folder, before = indexed[0], Index.load(indexed[0])
    filled = words.format(
        index=folder, run=trained / "run", images=trained / "images"
    )
    output = plain(run("index", *filled.split(), code=code))
    assert message in output
    assert Index.load(folder).ids.tolist() == before.ids.tolist()


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
def test_conditions_are_parsed(texts, expected) -> None:
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
def test_unfit_conditions_raise(texts, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_conditions(texts, COLUMNS)
