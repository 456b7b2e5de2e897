import json
import re
from importlib.util import find_spec

import click
import pytest
from click.testing import CliRunner
from PIL import Image

from keras_dml.cli import main
from keras_dml.cli.common import OutputFolder
from tests.runs.small_run import write_images, write_recipe


def run(*arguments: object, code: int = 0) -> str:
    words = list(map(str, arguments))
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def after(output: str, name: str, column: int = -1) -> str:
    """The number printed for a metric."""
    line = next(x for x in output.splitlines() if f"│ {name} " in x)
    return re.findall(r"\d\.\d{4}", line)[column]


def test_train_prints_before_after_and_divisions(commanded) -> None:
    answer, output = json.loads(commanded.stdout), commanded.stderr
    assert answer["run"] == str(commanded.folder)
    assert answer["images"]["train"] == 24
    assert 0 < answer["after"]["map@r"] <= 1
    assert answer["seconds"]["training"] > 0
    for text in ("recall@1", "before", "after", "Divisions", "clustering",
                 "Best epoch", "images per second", "verdict", "val_map@r ="
                 ):  # fmt: skip
        assert text in output
    order = (
        "Reading the data", "Data:", "Network:", "Device:", "Measured:",
        "Measuring before training", "Epoch 1/", "Measuring after training",
        "small: 36", "to measure the test images after training",
    )  # fmt: skip
    first = [output.index(text) for text in order]
    assert first == sorted(first)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("tensorboard"), reason="needs tensorboard")
def test_train_with_tensorboard_prints_how_to_open_it(tmp_path) -> None:
    recipe, folder = str(write_recipe(tmp_path)), tmp_path / "run"
    output = run("train", recipe, "--output", str(folder),
                 "--log", "tensorboard", "--set", "epochs=1",
                 "--set", "method={name: baseline, loss: contrastive, "
                 "embedding_dim: 8}")  # fmt: skip
    assert f"tensorboard --logdir {folder}" in output
    assert list((folder / "tensorboard").rglob("events.*"))


def test_evaluate_prints_the_same_numbers(commanded) -> None:
    again = run("evaluate", commanded.folder)
    for name in ("recall@1", "map@r", "r_precision", "nmi"):
        assert after(again, name) == after(commanded.stderr, name)
    other = ("--split", "train", "--model", "last")
    assert "24 train images" in run("evaluate", commanded.folder, *other)


@pytest.mark.parametrize(
    ("spec", "message"),
    [(None, "Use pip install jax"), ("", "Keras uses tensorflow")],
)
def test_train_explains_why_a_backend_is_unavailable(
    spec, message, monkeypatch
) -> None:
    module = "keras_dml.cli.commands.train.find_spec"
    monkeypatch.setattr(module, lambda name: spec)
    said = run("train", "quickstart", "--backend", "jax", code=2)
    assert message in said


def test_recipes_are_listed(tmp_path) -> None:
    output = run("recipes")
    assert " quickstart " in output
    assert " glyphs/diva " in output
    assert not re.search(r"[ /]_(base|frozen) ", output)
    empty = run("recipes", "list", "--folder", str(tmp_path), code=1)
    assert "no recipes" in empty


def test_data_check_draws_a_preview(tmp_path) -> None:
    images = write_images(tmp_path / "images")
    sheet = tmp_path / "sheet.png"
    output = run("data", "check", str(images), "--preview", str(sheet))
    assert re.search(r"test\W+6\W+36", output)
    with Image.open(sheet) as picture:
        assert picture.size[0] > 16


@pytest.mark.parametrize("command", ["evaluate", "export", "figures", "report"])
def test_folder_without_a_run_raises(command, tmp_path) -> None:
    output = run(command, str(tmp_path), code=1)
    assert "not the folder of a run" in output
    assert not list(tmp_path.iterdir())


def test_short_option_h_prints_help() -> None:
    assert ", version " in run("--version")
    for name in main.list_commands(None):
        assert f" {name} " in run(name, "-h")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("version", "Did you mean '--version'?"),
        ("recipes shwo x", "Did you mean `keras-dml recipes show x`?"),
        ("recipes cpy x to", "Did you mean `keras-dml recipes copy x to`?"),
        ("recipes x", "Did you mean `keras-dml recipes show x`?"),
        ("train", "Use `keras-dml recipes` to list"),
        ("benchmark --output x", "Use `keras-dml recipes` to list"),
        ("train x --resume --overwrite", "cannot be combined."),
        ("train x --epochs 2", "--set epochs=2."),
        ("train x --epoch 2", "--set epochs=2."),
        ("train x --learning-rate=0.1", "--set optimizer.learning_rate=0.1."),
        ("recipes show x --epochs", "--set epochs=VALUE."),
        ("train x --devcies 2", "Did you mean '--devices'?"),
        ("report x --epochs 2", "No such option '--epochs'."),
        ("train x --workers a:1,b:2 --index 0", "train by MetricModel.fit."),
        ("evaluate x --workers 2", "of the queries, use --queries."),
    ],
)
def test_misspelled_words_get_a_suggestion(arguments, message) -> None:
    output = " ".join(run(*arguments.split(), code=2).split())
    assert output.endswith(message) or message in output.split("Error: ")[1]
    assert "--set" in message or "--set" not in output.split("Error: ")[1]


def test_train_lists_missing_files_before_data_are_read(tmp_path) -> None:
    recipe, folder = write_recipe(tmp_path), tmp_path / "run"
    wrong = ["--set", "data.path=gone", "--set", "backbone.name=gone.keras"]
    output = run("train", str(recipe), "--output", str(folder), *wrong, code=1)
    assert "`data.path`: 'gone' does not exist" in output
    assert "`backbone.name`: 'gone.keras' does not exist" in output
    assert not folder.exists()


@pytest.mark.parametrize(
    "command",
    [
        "embed . .",
        "index . . --output",
        "train glyphs/baseline --output",
        "tune glyphs/baseline --output",
        "benchmark glyphs/baseline --output",
    ],
)
def test_output_folder_is_not_named_like_a_file(
    command, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = run(*command.split(), "x.csv", code=2)
    assert "named like a file" in output
    assert "Use a name such as 'x'" in " ".join(output.split())


def test_output_folder_may_have_dots_and_exist(tmp_path) -> None:
    (tmp_path / "old.csv").mkdir()
    for name in ("runs/v1.2", "s3://bucket/gallery", f"{tmp_path}/old.csv"):
        assert OutputFolder().convert(name, None, None) == name
    with pytest.raises(click.BadParameter, match="Use a name such as 'Gall"):
        OutputFolder().convert("s3://bucket/Gallery.CSV", None, None)
