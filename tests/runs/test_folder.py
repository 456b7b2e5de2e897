"""The folder of a run: replacing, reading, naming and keeping files."""

import csv
import errno
import json
import os
from pathlib import Path

import keras
import pytest

from keras_dml import MetricModel, recipes, runs
from keras_dml.recipes import Recipe, RecipeError
from keras_dml.runs import folder as folders
from keras_dml.runs.folder import RunLog, last_folder, load_outcome
from keras_dml.runs.plan import Run
from tests.cli.test_commands import run as run_command
from tests.runs.small_run import METHODS, write_recipe
from tests.runs.stub import finish


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    return recipes.load(write_recipe(tmp_path))


def test_run_is_replaced_only_when_asked(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    (folder / "best.keras").write_text("precious")
    with pytest.raises(FileExistsError, match="--overwrite"):
        runs.create_folder(folder, recipe)
    assert (folder / "best.keras").read_text() == "precious"
    (folder / "state").mkdir()
    with pytest.raises(FileExistsError, match="Use --resume to continue it"):
        runs.create_folder(folder, recipe)
    (folder / "state" / "file").write_text("old")
    runs.create_folder(folder, recipe, overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["recipe.yaml"]


def test_other_folders_and_files_are_never_removed(recipe, tmp_path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    assert runs.create_folder(folder, recipe) == folder
    (folder / "recipe.yaml").rename(folder / "holiday.jpg")
    with pytest.raises(FileExistsError, match="another --output"):
        runs.create_folder(folder, recipe, overwrite=True)
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(FileExistsError, match="already exists"):
        runs.create_folder(file, recipe, overwrite=True)
    assert (folder / "holiday.jpg").exists()
    assert file.read_text() == "precious"


def test_folders_are_numbered(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert last_folder("small") == Path("runs/small")
    for expected in ("small", "small-2", "small-3"):
        folder = runs.free_folder("small")
        assert folder.name == expected
        folder.mkdir(parents=True)
        assert last_folder("small") == folder
    (tmp_path / "runs" / "small-5").mkdir()
    assert last_folder("small").name == "small-3"


def test_unfinished_run_is_named(recipe, tmp_path) -> None:
    with pytest.raises(RecipeError, match="not the folder of a run"):
        runs.load_model(tmp_path)
    folder = runs.create_folder(tmp_path / "run", recipe)
    with pytest.raises(FileNotFoundError, match="no best.keras"):
        runs.load_model(folder)
    with pytest.raises(FileNotFoundError, match="queries.npz.*--overwrite"):
        load_outcome(folder)
    (folder / "state").mkdir()
    (folder / "state" / "state-3.npz").touch()
    way_on = f"Continue it: keras-dml train {folder}/recipe.yaml --output"
    for read in (load_outcome, runs.load_model):
        with pytest.raises(FileNotFoundError, match=way_on) as raised:
            read(folder)
        assert "--overwrite" not in str(raised.value)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("result.json", b""),
        ("result.json", b"[1, 2]"),
        ("result.json", b'{"a": 1}'),
        ("result.json", b"[" * 100_000),
        ("result.json", b"\xff\xfe"),
        ("queries.npz", b"PK\x03\x04 no more"),
        ("queries.npz", b""),
    ],
    ids=["empty", "list", "keys", "deep", "bytes", "archive", "no-archive"],
)
def test_damaged_result_is_named(file, content, recipe, tmp_path) -> None:
    finish(Run(recipe, tmp_path / "run"))
    folder = tmp_path / "run"
    assert load_outcome(folder).recipe == recipe
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"The result of the run .*/run'"):
        load_outcome(folder)
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with pytest.raises(OSError, match="it is a pipe or a device"):
        load_outcome(folder)


def test_run_of_another_recipe_raises(recipe, tmp_path) -> None:
    folder = runs.create_folder(tmp_path / "run", recipe)
    changes = ["epochs=7", "method.embedding_dim=16"]
    other = recipes.load(tmp_path / "small.yaml", changes)
    with pytest.raises(RecipeError, match="cannot be continued") as raised:
        runs.train(other, folder, resume=True)
    assert "\n  epochs: 2 → 7\n" in str(raised.value)
    assert "\n  method.embedding_dim: 8 → 16\n" in str(raised.value)
    with pytest.raises(FileExistsError):
        runs.train(other, tmp_path / "images", resume=True)


@pytest.mark.slow
def test_resuming_a_finished_run_only_reads_it(run_of) -> None:
    folder = run_of("baseline")
    before = {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}
    assert "state" not in before
    outcome = runs.train(runs.load_recipe(folder), folder, resume=True)
    assert outcome.after["recall@1"] >= 0
    assert before == {x.name: x.stat().st_mtime_ns for x in folder.iterdir()}


def test_log_matches_that_of_keras(tmp_path) -> None:
    ours = RunLog(tmp_path / "ours.csv")
    theirs = keras.callbacks.CSVLogger(str(tmp_path / "theirs.csv"))
    theirs.on_train_begin()
    for epoch, loss in enumerate((0.1, 1e-9, float("nan"))):
        for writer in (ours, theirs):
            logged = {"val_map@r": 1 / 3, "loss": loss}
            writer.on_epoch_end(epoch, logged if epoch < 2 else {"loss": loss})
    theirs.on_train_end()
    expected = (tmp_path / "theirs.csv").read_bytes()
    assert (tmp_path / "ours.csv").read_bytes() == expected


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_log_has_every_row_after_a_full_disk(
    tmp_path, monkeypatch, caplog
) -> None:
    def fail(*_: object) -> None:
        raise FULL

    log = RunLog(tmp_path / "metrics.csv")
    with monkeypatch.context() as full:
        full.setattr(folders, "write_atomically", fail)
        for epoch in range(2):
            log.on_epoch_end(epoch, {"loss": 0.5})
    assert len(caplog.records) == 1
    assert "No space left on device. Training continues" in caplog.text
    assert log.error == "No space left on device"
    log.on_train_end()
    assert log.error is None
    # A process that goes on writes the rows of the one before it.
    again = RunLog(tmp_path / "metrics.csv")
    again.set_state(json.loads(json.dumps(log.get_state())))
    again.on_epoch_end(2, {"loss": 0.25})
    with (tmp_path / "metrics.csv").open() as file:
        rows = [(row["epoch"], row["loss"]) for row in csv.DictReader(file)]
    assert rows == [("0", "0.5"), ("1", "0.5"), ("2", "0.25")]


@pytest.mark.slow
def test_full_disk_leaves_the_last_model(tmp_path, monkeypatch, caplog) -> None:
    save, saved = MetricModel.save, []

    def save_one(model: MetricModel, path: Path) -> None:
        if saved:
            raise FULL
        saved.append(path)
        save(model, path)

    folder = tmp_path / "run"
    with monkeypatch.context() as full:
        full.setattr(MetricModel, "save", save_one)
        output = run_command(
            "train", str(write_recipe(tmp_path)), "--output", str(folder),
            "--set", METHODS["baseline"],
            "--set", "evaluation.metrics=[recall@1, map@r]", code=1,
        )  # fmt: skip
    outcome = load_outcome(folder)
    assert outcome.best_epoch is None
    assert outcome.measured == "last.keras of epoch 1"
    assert outcome.measured in output
    assert set(outcome.unsaved) == {"best.keras", "last.keras"}
    again = run_command("evaluate", str(folder))
    assert "has no best.keras; last.keras is used instead" in caplog.text
    for value in outcome.after.values():
        assert f"{value:.4f}" in again
