"""The numbers of the tables against scipy and a naive bootstrap."""

import csv
import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from keras_dml.evaluation import Interval
from keras_dml.recipes import dump, load
from keras_dml.runs.benchmark import benchmark, read_plan
from keras_dml.runs.benchmark.comparison import Line
from keras_dml.runs.benchmark.plan import Entry
from keras_dml.runs.benchmark.report import (
    _shared_prefix,
    overview,
    shared_metrics,
    write_report,
)
from keras_dml.runs.folder import read_queries
from keras_dml.runs.outcome import p_value
from tests.runs.benchmark.stub import Stub, finish
from tests.runs.small_run import RECIPE

SEEDS = 4
COMMAND = "keras-dml benchmark 'a b.yaml' --seeds 4"


def plan_in(folder):
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(folder="unread"))
    return read_plan(
        [f"{path}::name=base", f"{path}::name=better::epochs=5"],
        SEEDS,
        folder / "out",
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = plan_in(tmp_path_factory.mktemp("report"))
    benchmark(plan, COMMAND, pool=Stub())
    return plan


@pytest.fixture(scope="module")
def text(plan) -> str:
    return (plan.output / "results.md").read_text()


@pytest.fixture(scope="module")
def rows(plan) -> dict[tuple[str, str], dict[str, str]]:
    with (plan.output / "results.csv").open() as file:
        return {(r["recipe"], r["metric"]): r for r in csv.DictReader(file)}


def by_seed(plan, recipe: str, metric: str) -> list[float]:
    """From the journal, in the order of the seeds."""
    lines = (plan.output / "runs.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    found = {e["seed"]: e for e in entries if e["recipe"] == recipe}
    return [found[seed]["metrics"][metric] for seed in range(SEEDS)]


def by_query(plan, recipe: str, metric: str) -> np.ndarray:
    """Mean over the seeds for each query."""
    return np.mean(
        [
            read_queries(
                plan.output / recipe / f"seed-{seed}" / "queries.npz"
            ).per_query[metric]
            for seed in range(SEEDS)
        ],
        axis=0,
    )


def naive_bootstrap(values: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(7)
    means = [
        values[rng.integers(0, len(values), len(values))].mean()
        for _ in range(4000)
    ]
    return tuple(np.quantile(means, [0.025, 0.975]))


def table_of(text: str, title: str) -> list[list[str]]:
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [x for x in section.splitlines() if x.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


@pytest.mark.parametrize("metric", ["recall@1", "map@r", "nmi"])
@pytest.mark.parametrize("recipe", ["base", "better"])
def test_means_over_seeds(plan, rows, recipe, metric) -> None:
    values = by_seed(plan, recipe, metric)
    assert len(set(values)) > 1
    row = rows[recipe, metric]
    low, high = stats.t.interval(
        0.95, SEEDS - 1, np.mean(values), stats.sem(values)
    )
    assert float(row["mean"]) == pytest.approx(np.mean(values))
    assert float(row["seeds_low"]) == pytest.approx(low)
    assert float(row["seeds_high"]) == pytest.approx(high)
    assert row["seeds"] == str(SEEDS)
    assert float(row["training_seconds"]) == pytest.approx(11.5)


@pytest.mark.parametrize("recipe", ["base", "better"])
def test_intervals_over_queries(plan, rows, recipe) -> None:
    row = rows[recipe, "map@r"]
    low, high = naive_bootstrap(by_query(plan, recipe, "map@r"))
    assert float(row["queries_low"]) == pytest.approx(low, abs=0.01)
    assert float(row["queries_high"]) == pytest.approx(high, abs=0.01)
    assert rows[recipe, "nmi"]["queries_low"] == ""


@pytest.mark.parametrize("metric", ["recall@1", "map@r", "nmi"])
def test_differences_by_seed(plan, rows, metric) -> None:
    expected = stats.ttest_rel(
        by_seed(plan, "better", metric), by_seed(plan, "base", metric)
    )
    interval = expected.confidence_interval(0.95)
    row = rows["better", metric]
    assert float(row["difference_seeds_low"]) == pytest.approx(interval.low)
    assert float(row["difference_seeds_high"]) == pytest.approx(interval.high)
    assert float(row["p_seeds"]) == pytest.approx(expected.pvalue)
    assert float(row["difference"]) > 0
    assert rows["base", metric]["difference"] == ""


def test_differences_by_query(plan, rows) -> None:
    gains = by_query(plan, "better", "map@r") - by_query(plan, "base", "map@r")
    row = rows["better", "map@r"]
    low, high = naive_bootstrap(gains)
    assert float(row["difference"]) == pytest.approx(gains.mean(), abs=1e-6)
    assert float(row["difference_queries_low"]) == pytest.approx(low, abs=0.01)
    assert float(row["difference_queries_high"]) == pytest.approx(
        high, abs=0.01
    )
    assert float(row["p_queries"]) == pytest.approx(2 / 1001)
    # Pairs tell more than the two intervals do.
    alone = rows["better", "map@r"]
    assert high - low < float(alone["queries_high"]) - float(
        alone["queries_low"]
    )


def test_tables_have_the_numbers_of_the_csv(text, rows) -> None:
    for metric in ("recall@1", "map@r", "nmi"):
        for cells in table_of(text, metric):
            row = rows[cells[0], metric]
            assert cells[1] == f"{float(row['mean']):.4f}"
            assert cells[2] == (
                f"[{float(row['seeds_low']):.4f}, "
                f"{float(row['seeds_high']):.4f}]"
            )
            if cells[0] == "base":
                assert cells[4:] == ["–"] * 5
            else:
                assert cells[4] == f"{float(row['difference']):+.4f}"
                assert cells[6] == p_value(float(row["p_seeds"]))
        assert len(table_of(text, metric)) == 2


def test_a_terminal_shows_what_all_recipes_have(plan) -> None:
    mean = Interval(0.5, 0.4, 0.6)
    lines = [
        Line("base", {}, over_seeds={"map@r": mean, "8/map@r": mean}),
        Line("better", {}, over_seeds={"map@r": mean}),
        Line("fails", {}),
    ]
    assert shared_metrics(lines) == ["map@r"]
    header, *rows = overview(plan, lines, shared_metrics(lines))
    assert header == ["recipe", "seeds", "map@r", "training, s", "images/s"]
    assert [row[2] for row in rows] == ["0.5000 ± 0.1000"] * 2 + ["–"]


def test_recipes_are_ordered_by_what_they_reach(text, rows) -> None:
    row = rows["better", "map@r"]
    half = float(row["seeds_high"]) - float(row["mean"])
    first, second = re.findall(r"^\| \d \|.*", text, re.M)
    assert f"| {float(row['mean']):.4f} ± {half:.4f} |" in first
    assert first.startswith("| 1 | better |")
    assert f"| {float(row['difference']):+.4f} |" in first
    assert first.endswith("| 12 |")
    assert second.startswith("| 2 | base |")


def test_each_command_trains_what_was_trained(plan, text) -> None:
    commands = re.findall(r"\$ keras-dml train (.*)", text)
    for command, recipe in zip(commands, plan.recipes[::-1], strict=True):
        path, *words = shlex.split(command)
        assert words[::2] == ["--set"] * (len(words) // 2)
        assert dump(load(path, words[1::2])) == dump(recipe)


def test_the_chart_has_each_mean(plan, rows) -> None:
    tree = ElementTree.parse(plan.output / "results.svg")
    texts = [x.text for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    for recipe in ("base", "better"):
        assert f"{float(rows[recipe, 'map@r']['mean']):.3f}" in texts


def test_names_in_the_chart_leave_out_what_all_begin_with() -> None:
    assert _shared_prefix(["emoji-mic", "emoji-margin"]) == "emoji-"
    assert _shared_prefix(["emoji-mic", "glyphs-mic"]) == ""
    assert _shared_prefix(["emoji-mic"]) == ""


def test_without_any_result_there_is_no_ranking(tmp_path) -> None:
    plan = plan_in(tmp_path)
    done = {x.key: Entry(*x.key, x.digest, error="no") for x in plan.runs()}
    plan.output.mkdir()
    write_report(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "## Failed" in text and "Commands" not in text
    assert not (plan.output / "results.svg").exists()


def test_report_says_how_it_came_about(text) -> None:
    assert text.splitlines()[2:5] == ["```console", f"$ {COMMAND}", "```"]
    assert "On 2 CPU cores, keras 3 (8 runs)." in text
    for metric in ("recall@1", "map@r", "nmi"):
        assert re.search(rf"^- {metric}: \w+", text, re.M)
    assert "docs/" not in text.partition("## ")[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0499, "0.050"), (0.0004, "< 0.001"), (1.0, "1.000"), (np.nan, "–")],
)
def test_p_values(value, expected) -> None:
    assert p_value(value) == expected


def written(tmp_path, **other):
    """A report of two recipes and two seeds whose second differs."""
    plan = plan_in(tmp_path)
    done = {}
    for run in plan.runs()[:4]:
        is_other = run.recipe.name == "better"
        finish(run, **(other if is_other else {}))
        test_set = other.get("test_set", "same") if is_other else "same"
        done[run.key] = Entry(
            *run.key, run.digest, metrics={"map@r": 0.5 + run.recipe.seed / 10},
            seconds=1.0, images_per_second=None, test_set=test_set,
            environment={"hardware": run.recipe.name, "code": str(run.key)},
        )  # fmt: skip
    return plan, done


def test_other_test_images_are_not_compared(tmp_path) -> None:
    plan, done = written(tmp_path, test_set="other", classes=19)
    write_report(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "test images differ from those of base: better." in text
    (row,) = [c for c in table_of(text, "map@r") if c[0] == "better"]
    assert row[1] == "0.5500" and row[4:] == ["–"] * 5


def test_environments_that_differ(tmp_path) -> None:
    plan, done = written(tmp_path)
    write_report(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "On base (2 runs).\n\nOn better (2 runs)." in text
    assert "changed between runs: 4 versions" in text
    assert "4 of 8 runs finished, 4 remaining." in text


def test_values_of_queries_that_were_removed(tmp_path) -> None:
    plan, done = written(tmp_path)
    (plan.output / "better" / "seed-1" / "queries.npz").unlink()
    write_report(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    base, better = table_of(text, "map@r")
    assert base[3] != "–" and better[3] == "–"
    assert better[4] == "+0.0000" and better[7:] == ["–", "–"]


def test_one_seed_has_no_interval_over_seeds(tmp_path) -> None:
    plan, done = written(tmp_path)
    one = {key: entry for key, entry in done.items() if key[1] == 0}
    write_report(plan, one, COMMAND)
    text = (plan.output / "results.md").read_text()
    base, better = table_of(text, "map@r")
    assert base[1:3] == ["0.5000", "–"] and base[3] != "–"
    assert better[5:7] == ["–", "–"] and better[7] != "–"
    assert "± " not in text.partition("Mean over")[0]
    assert "Over fewer seeds: base (1), better (1)." in text
    assert "nan" not in (plan.output / "results.svg").read_text()
