"""`keras-dml evaluate` on runs whose models were never trained."""

import csv
import functools
import re

import keras
import numpy as np
import pytest

from keras_dml import evaluation, recipes, runs
from keras_dml.embedding import EmbeddingShards, write_shards
from tests.cli.test_commands import run as run_command
from tests.recipes.builds import model_of
from tests.runs.small_run import write_recipe

run = functools.partial(run_command, "evaluate")


def make_run(folder, recipe_file, *settings):
    recipe = recipes.load(recipe_file, settings)
    runs.create_folder(folder, recipe)
    keras.utils.set_random_seed(recipe.seed)
    model_of(recipe).save(folder / "best.keras")
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    recipe = write_recipe(folder)
    method = "method={name: baseline, loss: contrastive, embedding_dim: 8}"
    return (
        make_run(folder / "first", recipe, method),
        make_run(folder / "second", recipe, method, "seed=1"),
    )


remeasured = functools.cache(runs.remeasure)


@pytest.fixture(autouse=True)
def measured_once(monkeypatch) -> None:
    """Runs that do not change have the same results each time."""
    monkeypatch.setattr("keras_dml.runs.remeasure", remeasured)


def results(folder) -> evaluation.Results:
    return remeasured(str(folder), "test", "best").results


@pytest.mark.slow
def test_run_is_evaluated_with_intervals(two) -> None:
    plain, output = run(two[0]), run(two[0], "--intervals")
    assert "95 %" not in plain
    assert "map@r: precision at each hit among the R nearest" in plain
    for name, interval in evaluation.bootstrap(results(two[0])).items():
        assert f"[{interval.low:.4f}, {interval.high:.4f}]" in output, name
    wide = run(two[0], "--intervals", "--units", "classes")
    assert "over classes" in wide and wide != output


@pytest.mark.slow
def test_two_runs_are_compared_by_query(two, tmp_path) -> None:
    file = tmp_path / "queries.csv"
    output = run(*two, "--csv", str(file))
    first, second = map(results, two)
    gains = second.per_query["map@r"] - first.per_query["map@r"]
    line = next(x for x in output.splitlines() if "│ map@r" in x)
    assert re.findall(r"[+-]\d\.\d{4}|\d\.\d{4}", line)[:3] == [
        f"{first['map@r']:.4f}",
        f"{second['map@r']:.4f}",
        f"{gains.mean():+.4f}",
    ]
    counts = [int((gains > 0).sum()), int((gains < 0).sum())]
    counts.append(36 - sum(counts))
    lines = [x for x in output.splitlines() if "│ map@r" in x]
    assert [int(x) for x in re.findall(r"│ (\d+) ", lines[1])] == counts
    assert f"5 of {counts[0]} queries where the second is better by" in output
    assert "1000 samples; p is two-sided." in output
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 36
    for name, measured in (("first", first), ("second", second)):
        values = [float(row[f"map@r {name}"]) for row in rows]
        np.testing.assert_array_equal(values, measured.per_query["map@r"])
    assert all(row["class"] in row["image"] for row in rows)


@pytest.mark.slow
def test_top_and_by_choose_the_listed_queries(two) -> None:
    output = run(*two, "--top", "2", "--by", "recall@1")
    assert re.search(r"2 of \d+ queries .* better by recall@1", output)
    assert "better by" not in run(*two, "--top", "0")


def test_run_equals_itself(two) -> None:
    output = run(two[0], two[0])
    assert "+0.0000, +0.0000" in output and "1.000" in output
    assert "better by" not in output


@pytest.mark.slow
def test_validation_split_of_two_seeds_raises(two) -> None:
    output = run(*two, "--split", "validation", code=1)
    assert "seed 0" in output and "seed 1" in output


@pytest.mark.slow
def test_options_that_do_not_fit_raise(two) -> None:
    assert "give OTHER" in run(two[0], "--by", "map@r", code=2)
    assert "give OTHER" in run(two[0], "--csv", "x.csv", code=2)
    assert "recall@1, map@r" in run(*two, "--by", "nmi", code=2)


@pytest.fixture
def embedded(tmp_path) -> EmbeddingShards:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 4)).astype(np.float32)
    labels = rng.integers(0, 9, 90)
    return write_shards(x, tmp_path / "shards", labels, rows_per_shard=40)


def values(output: str) -> dict[str, str]:
    return dict(re.findall(r"│ (\S+) +│ (\d\.\d+) +│", output))


def shown(results) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in results.items()}


def test_embeddings_are_evaluated_without_a_model(embedded) -> None:
    measured = evaluation.evaluate_embeddings(embedded)
    assert values(run(embedded.folder)) == shown(measured)
    output = run(
        embedded.folder, "--metric", "map@r", "--metric", "nmi", "--distance",
        "dot", "--cluster-sample", "50", "--memory", "2MB", "--intervals",
    )  # fmt: skip
    expected = evaluation.evaluate_embeddings(
        embedded, metrics=("map@r", "nmi"), distance="dot", cluster_sample=50
    )
    assert values(output.replace(" │  –", "")) == shown(expected) | {
        "map@r": values(output)["map@r"]
    }
    assert str(evaluation.bootstrap(expected)["map@r"].low)[:5] in output
    assert "dot, centroids of 50 rows" in output


def test_sampled_queries_and_galleries_are_evaluated(embedded) -> None:
    rows = np.sort(np.random.default_rng(0).choice(90, 20, replace=False))
    protocol = evaluation.Protocol(queries=rows)
    expected = evaluation.evaluate_embeddings(embedded, protocol=protocol)
    assert values(run(embedded.folder, "--queries", "20")) == shown(expected)
    # One and the same folder as queries and gallery: no row finds itself.
    expected = evaluation.evaluate_embeddings(embedded)
    assert expected["recall@1"] < 0.5
    output = run(embedded.folder, "--gallery", embedded.folder)
    assert values(output) == shown(expected)
    output = run(embedded.folder, "--queries", "91", code=2)
    assert "--queries must be at most the 90" in output
    asked = "--queries", "9", "--gallery", embedded.folder
    assert "Leave out --gallery" in run(embedded.folder, *asked, code=2)
