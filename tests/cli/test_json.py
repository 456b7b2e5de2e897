"""Tests of `--json`: one document on standard output, nothing else."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from keras_dml.cli import main
from keras_dml.cli.common import answer, json_option
from keras_dml.evaluation import Interval
from keras_dml.runs import remeasure
from tests.runs.small_run import write_images

CONTEXT = click.Context(main)
COMMANDS = main.list_commands(CONTEXT)
WITHOUT = {"serve"}
"""Commands without a result."""


def document(*arguments: str, code: int = 0) -> Any:
    """Parses standard output, which must be one strict JSON document."""
    ended = CliRunner().invoke(
        main, [*arguments, "--json"], catch_exceptions=False
    )
    assert ended.exit_code == code, ended.output
    return json.loads(ended.stdout, parse_constant=pytest.fail)


def leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from leaves(part)
    else:
        yield command


@pytest.fixture(scope="module")
def folder(run_of) -> str:
    return str(run_of("baseline"))


def test_every_command_has_the_json_option() -> None:
    for name in set(COMMANDS) - WITHOUT:
        for command in leaves(main.get_command(CONTEXT, name)):
            assert "--json" in sum((x.opts for x in command.params), []), name


def test_evaluate_prints_metrics_and_intervals(folder, monkeypatch) -> None:
    measured = remeasure(folder)
    monkeypatch.setattr("keras_dml.runs.remeasure", lambda *_: measured)
    expected = measured.results
    result = document("evaluate", folder, "--intervals")
    assert result["metrics"] == dict(expected)
    assert result["units"] == "queries"
    interval = result["intervals"]["map@r"]
    assert interval["low"] <= expected["map@r"] <= interval["high"]
    assert document("evaluate", folder)["intervals"] is None


@pytest.mark.slow
def test_index_and_search_print_images_and_hits(folder, tmp_path) -> None:
    images = write_images(tmp_path / "images", 3, 2)
    place = str(tmp_path / "index")
    index = document("index", folder, str(images), "--output", place)
    assert (index["index"], index["images"], index["metric"]) == (
        place, 6, "cosine",
    )  # fmt: skip
    query = next(images.rglob("*.png"))
    search_answer = document("search", str(query), "--index", place, "-k", "2")
    (answer,) = search_answer["queries"]
    assert answer["image"] == str(query)
    assert answer["hits"][0]["row"]["path"] == str(query)
    assert answer["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert len(answer["hits"]) == 2
    assert answer["hits"][0]["is_match"] is None


def test_recipes_and_data_print_files_and_splits(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "glyphs/diva" in document("recipes", "list")["recipes"]
    shown = document("recipes", "show", "glyphs/diva", "--set", "epochs=3")
    assert shown["epochs"] == 3
    files = document("recipes", "copy", "glyphs/diva")["files"]
    assert all(Path(file).exists() for file in files)
    report = document("data", "check", str(write_images(tmp_path / "images")))
    assert report["kind"] and report["problems"] == []
    assert sum(x["images"] for x in report["splits"].values()) == 72


def test_error_leaves_standard_output_empty() -> None:
    ended = CliRunner().invoke(main, ["recipes", "copy", "x", "--json"])
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert "no included recipe" in ended.stderr


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (-np.inf, None),
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (MappingProxyType({"a": np.nan}), {"a": None}),
        (
            Interval(0.5, 0.25, math.nan),
            {"estimate": 0.5, "low": 0.25, "high": None},
        ),
    ],
)
def test_special_values_become_plain_json(value, expected) -> None:
    @click.command()
    @json_option
    def show() -> None:
        answer({"value": value})

    ended = CliRunner().invoke(show, ["--json"], catch_exceptions=False)
    assert json.loads(ended.stdout) == {"value": expected}
