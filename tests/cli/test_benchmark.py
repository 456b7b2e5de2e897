"""`keras-dml benchmark`."""

import re
import shlex

import pytest

from keras_dml import runs
from tests.cli.test_commands import run as run_command
from tests.runs.small_run import write_unread
from tests.runs.stub import Stub, in_place


@pytest.fixture
def recipe(tmp_path) -> str:
    return str(write_unread(tmp_path))


def run(stub: Stub, *arguments: object, code: int = 0) -> str:
    with in_place(stub):
        return run_command("benchmark", *arguments, code=code)


def test_benchmark_trains_all_runs_and_prints_the_table(
    recipe, tmp_path
) -> None:
    stub = Stub()
    output = run(stub, recipe, f"{recipe}::name=b", "--seeds", "2", "--jobs",
                 "2", "--output", tmp_path / "out")  # fmt: skip
    assert len(stub.keys) == 4 and stub.jobs == {2}
    assert "--jobs" not in (tmp_path / "out" / "results.md").read_text()
    assert "[4/4] b, seed 1" in output
    assert re.search(r", about \d:\d\d:\d\d left", output)
    assert "±" in output
    assert str(tmp_path / "out" / "results.md") in output.replace("\n", "")


def test_command_in_the_report_reproduces_the_report(recipe, tmp_path) -> None:
    out = tmp_path / "out"
    second = f"{recipe}::name=b::method.loss={{name: triplet}}"
    run(Stub(), recipe, second, "--seeds", "1", "--output", out, "--set",
        "epochs=1", "--metrics", "map@r, recall@4", "--baseline",
        "b")  # fmt: skip
    text = (out / "results.md").read_text()
    program, *arguments = shlex.split(text.splitlines()[3].removeprefix("$ "))
    assert program == "keras-dml"
    stub = Stub()
    run(stub, *arguments[1:])
    assert stub.keys == []
    assert (out / "results.md").read_text() == text
    kept = runs.load_recipe(out / "small" / "seed-0")
    assert kept.epochs == 1
    assert kept.evaluation.metrics == ("map@r", "recall@4")


def test_failures_end_with_status_1(recipe, tmp_path) -> None:
    arguments = [recipe, f"{recipe}::name=b", "--seeds", "1", "--output",
                 tmp_path / "out"]  # fmt: skip
    output = run(Stub({"small": "no"}), *arguments, code=1)
    assert "failed: no" in output
    assert "1 of 2 runs failed" in output
    run(Stub(), *arguments, "--retry")


def test_ctrl_c_keeps_finished_runs_and_exits_130(recipe, tmp_path) -> None:
    arguments = recipe, "--seeds", "3", "--output", tmp_path / "out"
    output = run(Stub(stops=2), *arguments, code=130)
    assert "Run the same command to continue" in output
    text = (tmp_path / "out" / "results.md").read_text()
    assert "1 of 3 runs finished, 2 remaining." in text


def test_unknown_metric_raises_before_runs(recipe, tmp_path) -> None:
    out = tmp_path / "out"
    arguments = recipe, "--output", out, "--metrics", "recal@1"
    output = run(Stub(), *arguments, code=1)
    assert "Did you mean" in output and not out.exists()
