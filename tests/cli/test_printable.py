"""Printed text contains no control characters."""

import logging
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from PIL import Image

from keras_dml.cli import common, main
from keras_dml.cli.common import PrintableFormatter, print_table, printable
from keras_dml.search import Index
from keras_dml.search.encoder import as_image_set
from tests.cli.test_commands import run
from tests.runs.small_run import write_recipe

# Sets a terminal's title, clears its screen, goes back and turns around.
EVIL = "a\x1b]0;title\x07\x1b[2Jb\rc\x9b1md\u202ee"
SAFE = r"a\u001b]0;title\u0007\u001b[2Jb\u000dc\u009b1md\u202ee"


def is_safe(output: str) -> bool:
    return not any(x in output for x in "\x1b\x07\r\x9b\u202e\x7f")


def test_control_characters_are_escaped_and_text_is_kept() -> None:
    assert printable(EVIL) == SAFE
    assert (
        printable("Größe\t×\n日本 😀 \x00") == "Größe\t×\n日本 😀 " + r"\u0000"
    )
    assert printable(os.fsdecode(b"\xff.png")) == r"\udcff.png"


def test_tables_and_their_titles_are_escaped(capsys) -> None:
    print_table([["name", "x"], [EVIL, "[bold]1[/bold]"]], EVIL)
    output = capsys.readouterr().out
    assert is_safe(output)
    assert SAFE in output.splitlines()[0]
    assert "[bold]1[/bold]" in output


def test_log_lines_are_escaped() -> None:
    record = logging.LogRecord("a", 30, "a", 1, "It is %s", (EVIL,), None)
    line = PrintableFormatter("%(levelname)s %(message)s").format(record)
    assert line == f"WARNING It is {SAFE}"


def test_errors_and_warnings_are_escaped(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    ended = CliRunner().invoke(main, ["recipes", "show", str(tmp_path / EVIL)])
    assert ended.exit_code == 1
    assert is_safe(ended.output)
    assert SAFE in ended.output
    said = warnings.formatwarning(EVIL, UserWarning, "a.py", 1)
    assert said == f"WARNING {SAFE}\n"


def test_comments_and_values_of_recipes_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        f"# [red]{EVIL}\nname: a\n".replace("\r", "")
        + 'data: {name: image_folder, path: "x\\u202ey\\e]0;z"}\n'
        "method: {name: baseline, loss: margin}"
    )
    os.mkfifo(tmp_path / "b.yaml")
    output = run("recipes", "list", "--folder", tmp_path)
    assert is_safe(output)
    assert "[red]a" in output and "cannot" in output
    (tmp_path / "c.yaml").write_text(path.read_text().partition("\n")[2])
    output = run("recipes", "show", tmp_path / "c.yaml")
    assert is_safe(output)
    assert r"\u202e" in output


def test_rows_of_an_index_are_escaped(tmp_path: Path, monkeypatch) -> None:
    """A stranger's rows may have any name and path."""
    os.mkfifo(tmp_path / "pipe")
    paths = [str(tmp_path / "pipe"), "/dev/zero", str(tmp_path), EVIL, "0"]
    names = [EVIL, "[link=file:///etc/passwd]x", None, "d", "e"]
    x = np.eye(5, dtype="float32")
    boxes: list[object] = ["abc", [1, 2], None, [0.5] * 4, [10**18] * 4]
    index = Index(x, {"path": paths, "name": names, "box": boxes})
    hits = index.search(x[:1], 5)
    monkeypatch.setattr(Index, "load", lambda *_: index)
    monkeypatch.setattr(index, "search", lambda *_, **__: hits)
    query = tmp_path / "query.png"
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(query)
    page = tmp_path / "page.html"
    ended = CliRunner().invoke(
        main, ["search", str(query), "--index", "x", "--html", str(page)]
    )
    assert ended.exit_code == 0, ended.output
    assert is_safe(ended.output)
    assert page.read_text().count("file cannot be read") == 5


def test_no_command_prints_without_escaping() -> None:
    folder = Path(common.__file__).parent / "commands"
    for file in folder.glob("*.py"):
        assert "click.echo(" not in file.read_text(), file.name


@pytest.mark.parametrize("error", [MemoryError("1 TiB"), "tensorflow"])
def test_out_of_memory_is_one_message(error, monkeypatch) -> None:
    if error == "tensorflow":
        error = tf.errors.ResourceExhaustedError(None, None, "1 TiB\nmore")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("keras_dml.data.check", fail)
    ended = CliRunner().invoke(main, ["data", "check", "images"])
    assert ended.exit_code == 1
    said = "Not enough memory (1 TiB). Use smaller batches"
    assert said in ended.output


@pytest.mark.slow
def test_unreadable_image_in_a_batch_is_one_message(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    files = sorted((tmp_path / "images").rglob("*.png"))
    for file in files[:36]:  # Half of the classes, those in training.
        file.write_bytes(b"no image")
    rows = [
        f"{file},{file.parent.name},{'train' if i < 36 else 'test'}"
        for i, file in enumerate(files)
    ]
    table = tmp_path / "images.csv"
    table.write_text("\n".join(["path,label,split", *rows]))
    command = ["train", str(recipe), "--output", str(tmp_path / "run")]
    data = f"data={{name: table, path: {table}, validation: 0}}"
    method = "method={name: baseline, loss: contrastive}"
    ended = CliRunner().invoke(main, [*command, "--set", data, "--set", method])
    assert ended.exit_code == 1, ended.output
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith("Error: The image file '") and "class_0" in last
    assert last.endswith("Replace the file, or leave it out of the data.")
    assert "Traceback" not in ended.output and "node" not in last


def test_query_that_is_a_pipe_raises(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(ValueError, match="a folder, a pipe or a device"):
            as_image_set([path])
