"""Measurements of recipes, and data that cannot be measured."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from keras_dml import evaluation, recipes, runs
from keras_dml.data import DataSplits
from keras_dml.runs.folder import load_model, load_outcome
from keras_dml.runs.measuring import check_splits, measure
from tests.conftest import blobs
from tests.recipes.builds import data_of, model_of
from tests.runs.small_run import METHODS, write_recipe

ASKED = (
    METHODS["baseline"],
    "epochs=1",
    "evaluation={metrics: [recall@1, macro/map@r, fnmr@fmr=0.2], "
    "protocol: official, distance: euclidean, prefixes: [4], "
    "rerank: {name: k_reciprocal, k1: 3, k2: 2}}",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("protocol"))


@pytest.fixture
def splits() -> DataSplits:
    return DataSplits.by_class(blobs(classes=12), "blobs")


def test_ordinary_data_pass(path, splits) -> None:
    check_splits(recipes.load(path), splits)


@pytest.mark.parametrize("role", ["validation", "test"])
def test_single_image_per_class_raises(role, path, splits) -> None:
    images = getattr(splits, role)
    alone = images.select(np.unique(images.labels, return_index=True)[1])
    splits = dataclasses.replace(splits, **{role: alone})
    with pytest.raises(ValueError, match=f"one {role} class") as error:
        check_splits(recipes.load(path), splits)
    assert str(path.parent / "images") in str(error.value)
    assert "`data` of the recipe 'small'" in str(error.value)


def test_query_must_have_another_image_to_find(path, splits) -> None:
    recipe, labels = recipes.load(path), splits.test.labels
    is_first, row = labels == labels[0], np.array([0])
    for queries, gallery in (
        (np.flatnonzero(is_first), np.flatnonzero(~is_first)),
        (row, row),
    ):
        divided = dataclasses.replace(
            splits, query_rows=queries, gallery_rows=gallery
        )
        with pytest.raises(ValueError, match="one test class"):
            check_splits(recipe, divided)
    other = dataclasses.replace(divided, gallery_rows=np.array([0, 1]))
    check_splits(recipe, other)


@pytest.mark.slow
def test_run_is_measured_by_its_recipe(path) -> None:
    recipe, folder = recipes.load(path, ASKED), path.parent / "run"
    runs.train(recipe, folder, verbose=0)
    outcome = load_outcome(folder)
    expected = evaluation.evaluate(
        load_model(folder),
        data_of(recipe).test,
        metrics=recipe.evaluation.metrics,
        protocol="official",
        distance="euclidean",
        prefixes=(4,),
        rerank=evaluation.KReciprocal(k1=3, k2=2),
    )
    assert dict(outcome.after) == dict(expected)
    assert {"macro/map@r", "4/macro/map@r"} <= set(expected)
    assert outcome.after.num_draws == 10
    assert dict(runs.remeasure(folder).results) == dict(expected)
    content = json.loads((folder / "result.json").read_text())
    assert content["after"] == dict(expected)
    assert "the mean of 10 draws" in (folder / "summary.md").read_text()
    intervals = evaluation.bootstrap(outcome.after, num_resamples=20)
    assert intervals["4/macro/map@r"].estimate == pytest.approx(
        expected["4/macro/map@r"], abs=1e-6
    )


@pytest.mark.slow
def test_default_protocol_is_that_of_the_data_set(path) -> None:
    recipe = recipes.load(path, (METHODS["baseline"],))
    splits, model = data_of(recipe), model_of(recipe)
    rows = np.arange(len(splits.test))
    query_splits = dataclasses.replace(
        splits, query_rows=rows[::2], gallery_rows=rows[1::2]
    )
    results = measure(recipe, model, query_splits)
    assert results.gallery_size == len(rows) // 2
    run = SimpleNamespace(after=results, images={"test": len(rows)})
    said = runs.Outcome.protocol_phrase(run)
    assert said == f"queries among a gallery of {len(rows) // 2}"
    half = splits.test.select(rows[::2])
    several = dataclasses.replace(
        splits, tests={"small": splits.test, "half": half}
    )
    assert measure(recipe, model, several, "half").gallery_size == len(half)
    with pytest.raises(ValueError, match="'half'.*Received: name='huge'"):
        measure(recipe, model, several, "huge")
    every = recipes.load(path, ("evaluation.protocol=all_vs_all",))
    assert measure(every, model, query_splits).gallery_size == len(rows)
    papers = recipes.load("vehicleid/divide_and_conquer")
    assert papers.evaluation.protocol == "official"
    official = recipes.load(path, ("evaluation.protocol=official",))
    check_splits(official, splits)
    with pytest.raises(ValueError, match="defines queries and gallery"):
        check_splits(official, query_splits)
