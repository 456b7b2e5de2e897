"""Commands end with the command to type next, with its values filled in."""

import importlib
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from keras_dml import runs
from keras_dml.cli import main
from keras_dml.resuming import TERMINATED
from keras_dml.runs.folder import load_outcome

NEXT = {
    "train RUN/recipe.yaml --output RUN": "keras-dml report RUN",
    "report RUN": "keras-dml index RUN test --calibrate test",
    "index RUN test --output index": "keras-dml serve RUN --gallery index",
    "evaluate RUN": "keras-dml export RUN",
    "embed RUN test out": "keras-dml evaluate out",
    "data check images": "keras-dml train photographs --set data.path=images",
    "data check RUN/recipe.yaml": "keras-dml train RUN/recipe.yaml",
    "recipes copy quickstart": "keras-dml train recipes/quickstart.yaml",
}
RULES = Path(__file__).parents[2] / ".ci"
RESUME = "keras-dml train RUN/recipe.yaml --output RUN --resume"


@pytest.fixture
def run(run_of, tmp_path, monkeypatch) -> str:
    """A run in the working directory, with a space in its name."""
    monkeypatch.syspath_prepend(RULES)
    source = run_of("baseline")
    shutil.copytree(source.parent / "images", tmp_path / "images")
    shutil.copytree(source, tmp_path / "my run")
    monkeypatch.chdir(tmp_path)
    return "my run"


def invoke(line: str, run: str) -> click.testing.Result:
    words = [word.replace("RUN", run) for word in line.split()]
    return CliRunner().invoke(main, words, catch_exceptions=False)


def check_next(output: str, line: str, run: str) -> None:
    label, *words = shlex.split(output.splitlines()[-1])
    assert label == "Next:"
    assert words == [word.replace("RUN", run) for word in line.split()]
    commands = importlib.import_module("rules.commands")
    commands.try_command(words[1:])


@pytest.mark.parametrize("line", NEXT)
def test_commands_end_with_the_next_one(line, run, monkeypatch) -> None:
    outcome = load_outcome(run)
    monkeypatch.setattr(runs, "train", lambda *_: outcome)
    page = Path("images/page.html")
    page.touch()
    monkeypatch.setattr("keras_dml.reports.report", lambda *_: page)
    ended = invoke(line, run)
    assert ended.exit_code == 0, ended.output
    check_next(ended.output, NEXT[line], run)


@pytest.mark.parametrize("status", [130, TERMINATED])
def test_stopped_training_ends_with_its_resumption(
    status, run, monkeypatch
) -> None:
    outcome = replace(load_outcome(run), interrupted=True)

    def train(*_: object) -> runs.Outcome:
        if status == TERMINATED:
            raise SystemExit(TERMINATED)
        return outcome

    monkeypatch.setattr(runs, "train", train)
    ended = invoke("train RUN/recipe.yaml --output RUN", run)
    assert ended.exit_code == status
    check_next(ended.output, RESUME, run)


def test_an_exported_model_is_for_a_server(run, monkeypatch) -> None:
    path = Path("models/small/1")
    monkeypatch.setattr("keras_dml.export.export_model", lambda *_, **__: path)
    ended = invoke("export RUN", run)
    mount = f"{path.parent.resolve()}:/models/small"
    assert ended.output.splitlines()[-1].startswith(
        f"Next: docker run -p 8501:8501 -v {mount} "
    )


def test_json_has_no_next_command(run) -> None:
    ended = invoke("recipes copy quickstart --json", run)
    assert ended.exit_code == 0
    assert "Next:" not in ended.output
