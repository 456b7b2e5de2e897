"""The numbers of the tables against scipy, loops and a naive bootstrap."""

import csv
import json
import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from keras_dml.evaluation import Interval, evaluate_embeddings
from keras_dml.runs.benchmark import benchmark, read_plan
from keras_dml.runs.folder import read_queries
from keras_dml.runs.outcome import p_value
from keras_dml.runs.plan import Entry
from keras_dml.runs.tables import (
    Line,
    average_results,
    latex,
    leaderboard,
    mean_interval,
    paired_difference,
    rank,
    write_tables,
)
from tests.runs.small_run import write_unread
from tests.runs.stub import Stub, finish

SEEDS = 4
COMMAND = "keras-dml benchmark 'a b.yaml' --seeds 4"
RECIPES = pytest.mark.parametrize("recipe", ["base", "better"])
NAMES = pytest.mark.parametrize("metric", ["recall@1", "map@r", "nmi"])


def plan_in(folder):
    path = write_unread(folder)
    texts = [f"{path}::name=base", f"{path}::name=better::epochs=5"]
    return read_plan(texts, SEEDS, folder / "out")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = plan_in(tmp_path_factory.mktemp("report"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("keras_dml.runs.benchmark.start_training", Stub())
        patched.setattr("keras_dml.runs.benchmark.rehearse", lambda *_: None)
        benchmark(plan, COMMAND)
    return plan


@pytest.fixture(scope="module")
def text(plan) -> str:
    return (plan.output / "results.md").read_text()


def rows_of(plan) -> dict[tuple[str, str], dict[str, str]]:
    with (plan.output / "results.csv").open() as file:
        return {(r["recipe"], r["metric"]): r for r in csv.DictReader(file)}


@pytest.fixture(scope="module")
def rows(plan) -> dict[tuple[str, str], dict[str, str]]:
    return rows_of(plan)


def interval_of(row, name: str) -> tuple[float, float]:
    return float(row[f"{name}_low"]), float(row[f"{name}_high"])


def by_seed(plan, recipe: str, metric: str) -> list[float]:
    """Values from the journal, in the order of the seeds."""
    lines = (plan.output / "runs.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    values = {e["seed"]: e["metrics"] for e in entries if e["recipe"] == recipe}
    return [values[seed][metric] for seed in range(SEEDS)]


def by_query(plan, recipe: str, metric: str) -> np.ndarray:
    """Mean over the seeds for each query."""
    folder = plan.output / recipe
    paths = [folder / f"seed-{seed}/queries.npz" for seed in range(SEEDS)]
    values = [read_queries(path).per_query[metric] for path in paths]
    return np.mean(values, axis=0)


def naive_bootstrap(values: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(7)
    means = [
        values[rng.integers(0, len(values), len(values))].mean()
        for _ in range(4000)
    ]
    return tuple(np.quantile(means, [0.025, 0.975]))


@NAMES
@RECIPES
def test_means_over_seeds_match_scipy(plan, rows, recipe, metric) -> None:
    values = by_seed(plan, recipe, metric)
    assert len(set(values)) > 1
    row = rows[recipe, metric]
    expected = stats.t.interval(
        0.95, SEEDS - 1, np.mean(values), stats.sem(values)
    )
    assert float(row["mean"]) == pytest.approx(np.mean(values))
    assert interval_of(row, "seeds") == pytest.approx(expected)
    assert row["seeds"] == str(SEEDS)
    assert float(row["training_seconds"]) == pytest.approx(11.5)


@RECIPES
def test_intervals_over_queries_are_bootstrapped(plan, rows, recipe) -> None:
    expected = naive_bootstrap(by_query(plan, recipe, "map@r"))
    interval = interval_of(rows[recipe, "map@r"], "queries")
    assert interval == pytest.approx(expected, abs=0.01)
    assert rows[recipe, "nmi"]["queries_low"] == ""


@NAMES
def test_differences_by_seed_match_scipy(plan, rows, metric) -> None:
    expected = stats.ttest_rel(
        by_seed(plan, "better", metric), by_seed(plan, "base", metric)
    )
    row = rows["better", metric]
    interval = interval_of(row, "difference_seeds")
    assert interval == pytest.approx(expected.confidence_interval(0.95))
    assert float(row["p_seeds"]) == pytest.approx(expected.pvalue)
    assert float(row["difference"]) > 0
    assert rows["base", metric]["difference"] == ""


def test_differences_by_query_are_paired(plan, rows) -> None:
    gains = by_query(plan, "better", "map@r") - by_query(plan, "base", "map@r")
    row = rows["better", "map@r"]
    low, high = naive_bootstrap(gains)
    assert float(row["difference"]) == pytest.approx(gains.mean(), abs=1e-6)
    interval = interval_of(row, "difference_queries")
    assert interval == pytest.approx((low, high), abs=0.01)
    assert float(row["p_queries"]) == pytest.approx(2 / 1001)
    # Pairs tell more than the two intervals do.
    alone = interval_of(row, "queries")
    assert high - low < alone[1] - alone[0]


def test_interval_matches_one_by_hand() -> None:
    # s = 1, n = 3, t(0.975; 2) = 4.302653
    interval = mean_interval([1.0, 2.0, 3.0])
    half = interval.high - interval.estimate
    assert half == pytest.approx(4.302653 / 3**0.5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.812, 0.807], [0.812, 0.807], (0, 0, 0, np.nan)),
        ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], (1, 1, 1, 0)),
        ([np.inf, 1.0], [np.inf, 2.0], (np.nan,) * 4),
    ],
    ids=["equal", "constant", "infinite"],
)
def test_differences_without_variance_are_exact(
    first, second, expected
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = paired_difference(first, second)
    np.testing.assert_equal((x.estimate, x.low, x.high, x.p_value), expected)


def results(seed: int):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), 4)
    noise = rng.standard_normal((40, 40))[:, :10]
    x = np.eye(10)[labels] + 0.7 * noise
    return evaluate_embeddings(x, labels, metrics=("map@r", "nmi"))


def test_results_are_averaged_by_query() -> None:
    parts = [results(seed) for seed in range(3)]
    mean = average_results(parts)
    for query in range(40):
        values = [part.per_query["map@r"][query] for part in parts]
        assert mean.per_query["map@r"][query] == pytest.approx(sum(values) / 3)
    assert mean["map@r"] == pytest.approx(mean.per_query["map@r"].mean())
    assert mean["nmi"] == pytest.approx(sum(p["nmi"] for p in parts) / 3)


def board(text: str) -> list[list[str]]:
    lines = [x for x in text.splitlines() if x.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_leaderboard_has_the_numbers_of_the_csv(plan, text, rows) -> None:
    first, second = board(text)
    row = rows["better", "map@r"]
    half = float(row["seeds_high"]) - float(row["mean"])
    mean = f"{float(row['mean']):.4f} ± {half:.4f}"
    assert first[:3] == ["better", "4", mean]
    low, high = interval_of(row, "difference_seeds")
    assert first[5:] == [
        f"{float(row['difference']):+.4f}",
        f"[{low:+.4f}, {high:+.4f}]",
        p_value(float(row["p_seeds"])),
        "12",
        "100",
    ]
    assert second[0] == "base" and second[5:8] == ["–"] * 3
    lines = (plan.output / "results.tex").read_text().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrrrrr}"
    cells = lines[4].removesuffix(r" \\").split(" & ")
    assert cells == [x.replace("±", r"$\pm$") for x in first]
    assert latex([["a_b", "5 %"], ["–", "−1"]]).count("\\_") == 1


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


def test_chart_has_each_mean(plan, rows) -> None:
    tree = ElementTree.parse(plan.output / "results.svg")
    texts = [x.text for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    for recipe in ("base", "better"):
        assert f"{float(rows[recipe, 'map@r']['mean']):.3f}" in texts


def test_report_names_its_command_and_environment(text) -> None:
    assert text.splitlines()[2:5] == ["```sh", COMMAND, "```"]
    assert "On 2 CPU cores, keras 3 (8 runs)." in text
    for metric in ("recall@1", "map@r", "nmi"):
        assert re.search(rf"^- {metric}: \w+", text, re.M)
    assert "docs/" not in text.partition("## ")[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0499, "0.050"), (0.0004, "< 0.001"), (1.0, "1.000"), (np.nan, "–")],
)
def test_p_values_have_three_digits(value, expected) -> None:
    assert p_value(value) == expected


def entries_in(tmp_path, **other):
    """A plan, and entries of two recipes and seeds whose second differs."""
    plan = plan_in(tmp_path)
    done = {}
    for run in plan.runs()[:4]:
        changes = other if run.recipe.name == "better" else {}
        finish(run, **changes)
        done[run.key] = Entry(
            *run.key, run.digest, metrics={"map@r": 0.5 + run.recipe.seed / 10},
            seconds=1.0, test_set=changes.get("test_set", "same"),
            environment={"hardware": run.recipe.name, "code": str(run.key)},
        )  # fmt: skip
    return plan, done


def tables_of(plan, done) -> tuple[str, dict[str, str], dict[str, str]]:
    """The report, and rows of map@r of the baseline and of the other."""
    write_tables(plan, done, COMMAND)
    rows = rows_of(plan)
    text = (plan.output / "results.md").read_text()
    return text, rows["base", "map@r"], rows["better", "map@r"]


def test_failures_alone_have_no_ranking(tmp_path) -> None:
    plan = plan_in(tmp_path)
    done = {x.key: Entry(*x.key, x.digest, error="no") for x in plan.runs()}
    plan.output.mkdir()
    write_tables(plan, done, COMMAND)
    assert "## Failed" in (plan.output / "results.md").read_text()
    assert not (plan.output / "results.svg").exists()


def test_other_test_images_are_not_compared(tmp_path) -> None:
    plan, done = entries_in(tmp_path, test_set="other", classes=19)
    text, _, row = tables_of(plan, done)
    assert "test images differ from those of base: better." in text
    assert row["mean"] == "0.55" and row["difference"] == ""


def test_missing_values_of_queries_have_no_interval(tmp_path) -> None:
    plan, done = entries_in(tmp_path)
    (plan.output / "better" / "seed-1" / "queries.npz").unlink()
    text, base, row = tables_of(plan, done)
    assert base["queries_low"] != ""
    assert row["queries_low"] == row["p_queries"] == ""
    assert row["difference"] == "0.0"
    # Environments that differ are listed.
    assert "On base (2 runs).\n\nOn better (2 runs)." in text
    assert "changed between runs: 4 versions" in text
    assert "4 of 8 runs finished, 4 remaining." in text


def test_one_seed_has_no_interval_over_seeds(tmp_path) -> None:
    plan, done = entries_in(tmp_path)
    one = {key: entry for key, entry in done.items() if key[1] == 0}
    _, _, row = tables_of(plan, one)
    assert row["mean"] == "0.5"
    assert row["seeds_low"] == row["p_seeds"] == ""
    assert row["queries_low"] != "" and row["p_queries"] != ""
    assert "nan" not in (plan.output / "results.svg").read_text()
