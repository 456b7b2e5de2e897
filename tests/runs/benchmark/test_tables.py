"""The numbers of the tables against scipy and a naive bootstrap."""

import csv
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from keras_dml.evaluation import Interval
from keras_dml.runs.benchmark import benchmark, read_plan
from keras_dml.runs.benchmark.comparison import Line
from keras_dml.runs.benchmark.plan import Entry
from keras_dml.runs.benchmark.tables import (
    latex,
    leaderboard,
    rank,
    write_tables,
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
    with pytest.MonkeyPatch.context() as patched:
        name = "keras_dml.runs.benchmark.training.start_training"
        patched.setattr(name, Stub())
        benchmark(plan, COMMAND)
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


def board(text: str) -> list[list[str]]:
    lines = [x for x in text.splitlines() if x.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_leaderboard_has_the_numbers_of_the_csv(text, rows) -> None:
    first, second = board(text)
    row = rows["better", "map@r"]
    half = float(row["seeds_high"]) - float(row["mean"])
    assert first[:3] == [
        "better",
        "4",
        f"{float(row['mean']):.4f} ± {half:.4f}",
    ]
    low, high = row["difference_seeds_low"], row["difference_seeds_high"]
    assert first[5:] == [
        f"{float(row['difference']):+.4f}",
        f"[{float(low):+.4f}, {float(high):+.4f}]",
        p_value(float(row["p_seeds"])),
        "12",
        "100",
    ]
    assert second[0] == "base" and second[5:8] == ["–"] * 3


def test_leaderboard_has_the_metrics_of_all_recipes(plan) -> None:
    mean = Interval(0.5, 0.4, 0.6)
    lines = [
        Line("base", {}, over_seeds={"map@r": mean, "8/map@r": mean}),
        Line("better", {}, over_seeds={"map@r": mean}),
        Line("fails", {}),
    ]
    metric, ranking = rank(plan, lines)
    header, *cells = leaderboard(plan, metric, ranking)
    assert header[:4] == ["recipe", "seeds", "map@r", "− base"]
    assert [x[2] for x in cells] == ["0.5000 ± 0.1000"] * 2


def test_latex_table_has_the_leaderboard(plan, text) -> None:
    table = (plan.output / "results.tex").read_text()
    lines = table.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrrrrr}"
    first, *_ = board(text)
    cells = lines[4].removesuffix(r" \\").split(" & ")
    assert cells == [x.replace("±", r"$\pm$") for x in first]
    assert latex([["a_b", "5 %"], ["–", "−1"]]).count("\\_") == 1


def test_chart_has_each_mean(plan, rows) -> None:
    tree = ElementTree.parse(plan.output / "results.svg")
    texts = [x.text for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    for recipe in ("base", "better"):
        assert f"{float(rows[recipe, 'map@r']['mean']):.3f}" in texts


def test_without_any_result_there_is_no_ranking(tmp_path) -> None:
    plan = plan_in(tmp_path)
    done = {x.key: Entry(*x.key, x.digest, error="no") for x in plan.runs()}
    plan.output.mkdir()
    write_tables(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "## Failed" in text
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


def values_of(plan) -> dict[str, dict[str, str]]:
    """The rows of map@r in the CSV, by recipe."""
    with (plan.output / "results.csv").open() as file:
        return {x["recipe"]: x for x in csv.DictReader(file)}


def test_other_test_images_are_not_compared(tmp_path) -> None:
    plan, done = written(tmp_path, test_set="other", classes=19)
    write_tables(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "test images differ from those of base: better." in text
    row = values_of(plan)["better"]
    assert row["mean"] == "0.55" and row["difference"] == ""


def test_environments_that_differ_are_listed(tmp_path) -> None:
    plan, done = written(tmp_path)
    write_tables(plan, done, COMMAND)
    text = (plan.output / "results.md").read_text()
    assert "On base (2 runs).\n\nOn better (2 runs)." in text
    assert "changed between runs: 4 versions" in text
    assert "4 of 8 runs finished, 4 remaining." in text


def test_removed_values_of_queries_have_no_interval(tmp_path) -> None:
    plan, done = written(tmp_path)
    (plan.output / "better" / "seed-1" / "queries.npz").unlink()
    write_tables(plan, done, COMMAND)
    rows = values_of(plan)
    assert rows["base"]["queries_low"] != ""
    assert rows["better"]["queries_low"] == ""
    assert rows["better"]["difference"] == "0.0"
    assert rows["better"]["p_queries"] == ""


def test_one_seed_has_no_interval_over_seeds(tmp_path) -> None:
    plan, done = written(tmp_path)
    one = {key: entry for key, entry in done.items() if key[1] == 0}
    write_tables(plan, one, COMMAND)
    row = values_of(plan)["better"]
    assert row["mean"] == "0.5"
    assert row["seeds_low"] == row["p_seeds"] == ""
    assert row["queries_low"] != "" and row["p_queries"] != ""
    assert "nan" not in (plan.output / "results.svg").read_text()
