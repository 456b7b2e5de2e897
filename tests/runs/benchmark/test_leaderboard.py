"""The leaderboard: order, chart and commands, against the journal."""

import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest

from keras_dml.recipes import dump, load
from keras_dml.runs.benchmark import benchmark, read_plan
from keras_dml.runs.benchmark.leaderboard import _shared_prefix
from tests.runs.benchmark.stub import Stub
from tests.runs.small_run import RECIPE

SEEDS = 3


def plan_in(folder, *settings: str, seeds: int = SEEDS):
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(folder="unread"))
    return read_plan(
        [
            f"{path}::name=base",
            f"{path}::name=better::epochs=50",
            f"{path}::name=fails",
            f"{path}::name=worse::epochs=1",
        ],
        seeds,
        folder / "out",
        settings,
        "base",
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = plan_in(tmp_path_factory.mktemp("board"), "method.embedding_dim=16")
    benchmark(plan, "command", pool=Stub({"fails": "no"}))
    return plan


@pytest.fixture(scope="module")
def board(plan) -> str:
    return (plan.output / "leaderboard.md").read_text()


def table(board: str) -> list[list[str]]:
    lines = [line for line in board.splitlines() if line.startswith("| ")]
    return [[x.strip() for x in line.strip("|").split("|")] for line in lines]


def measured(plan, metric: str) -> dict[str, list[float]]:
    """From the journal, in the order of the seeds."""
    found: dict[str, list[float]] = {}
    for line in (plan.output / "runs.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["metrics"]:
            values = found.setdefault(entry["recipe"], [])
            values.append(entry["metrics"][metric])
    return found


def test_recipes_are_ordered_by_what_they_reach(plan, board) -> None:
    header, _, *rows = table(board)
    assert header[1:3] == ["recipe", "map@r"]
    values = measured(plan, "map@r")
    expected = sorted(values, key=lambda name: -np.mean(values[name]))
    assert [row[1] for row in rows] == expected
    assert [row[0] for row in rows] == ["1", "2", "3"]
    for row in rows:
        assert row[2].startswith(f"{np.mean(values[row[1]]):.4f} ± ")
    assert all(row[1] != "fails" for row in rows)


def test_differences_are_from_the_baseline(plan, board) -> None:
    header, _, *rows = table(board)
    values = measured(plan, "map@r")
    column = header.index("− base")
    for row in rows:
        gain = np.mean(values[row[1]]) - np.mean(values["base"])
        wanted = "–" if row[1] == "base" else f"{gain:+.4f}"
        assert row[column] == wanted


def test_each_command_trains_what_was_trained(plan, board) -> None:
    commands = re.findall(r"\$ keras-dml train (.*)", board)
    assert len(commands) == 3
    recipes = {recipe.name: recipe for recipe in plan.recipes}
    for command in commands:
        path, *words = shlex.split(command)
        assert words[::2] == ["--set"] * (len(words) // 2)
        recipe = load(path, words[1::2])
        assert recipe.method.embedding_dim == 16
        assert dump(recipe) == dump(recipes[recipe.name])


def test_the_chart_has_each_mean(plan) -> None:
    tree = ElementTree.parse(plan.output / "leaderboard.svg")
    texts = [x.text for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    for values in measured(plan, "map@r").values():
        assert f"{np.mean(values):.3f}" in texts


def test_names_in_the_chart_leave_out_what_all_begin_with() -> None:
    assert _shared_prefix(["emoji-mic", "emoji-margin"]) == "emoji-"
    assert _shared_prefix(["emoji-mic", "glyphs-mic"]) == ""
    assert _shared_prefix(["emoji-mic"]) == ""


def test_one_seed_has_no_interval(tmp_path) -> None:
    plan = plan_in(tmp_path, seeds=1)
    benchmark(plan, "command", pool=Stub())
    board = (plan.output / "leaderboard.md").read_text()
    assert "±" not in "".join(map("".join, table(board)))
    assert "nan" not in (plan.output / "leaderboard.svg").read_text()


def test_means_over_fewer_seeds_are_named(tmp_path) -> None:
    plan = plan_in(tmp_path, seeds=2)
    with pytest.raises(KeyboardInterrupt):
        benchmark(plan, "command", pool=Stub(stops=6))
    board = (plan.output / "leaderboard.md").read_text()
    _, *others = [recipe.name for recipe in plan.recipes]
    counts = re.findall(r"(\S+) \(1\)", board.partition("fewer seeds: ")[2])
    assert sorted(counts) == sorted(others)
    benchmark(plan, "command", pool=Stub())
    assert "Over fewer" not in (plan.output / "leaderboard.md").read_text()


def test_without_any_result_there_is_none(tmp_path) -> None:
    plan = plan_in(tmp_path)
    names = [recipe.name for recipe in plan.recipes]
    benchmark(plan, "command", pool=Stub(dict.fromkeys(names, "no")))
    assert not (plan.output / "leaderboard.md").exists()
