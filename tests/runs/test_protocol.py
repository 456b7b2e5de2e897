"""Runs are measured by the protocol of their recipe."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest

from keras_dml import backbones, evaluation, methods, recipes, runs
from keras_dml.data import DATASETS
from keras_dml.runs.folder import load_model, load_outcome
from keras_dml.runs.measuring import check_splits, measure
from tests.recipes import stand_ins
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


@pytest.mark.slow
def test_a_run_is_measured_as_its_recipe_says(path) -> None:
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
    found = evaluation.bootstrap(outcome.after, num_resamples=20)
    assert found["4/macro/map@r"].estimate == pytest.approx(
        expected["4/macro/map@r"], abs=1e-6
    )


@pytest.mark.slow
def test_by_default_it_is_the_data_sets(path) -> None:
    recipe = recipes.load(path, (METHODS["baseline"],))
    splits = data_of(recipe)
    model = model_of(recipe)
    count = len(splits.test)
    rows = {
        "query_rows": np.arange(0, count, 2),
        "gallery_rows": np.arange(1, count, 2),
    }
    named = dataclasses.replace(splits, **rows)
    assert measure(recipe, model, named).gallery_size == count // 2
    every = recipes.load(path, ("evaluation.protocol=all_vs_all",))
    assert measure(every, model, named).gallery_size == count
    official = recipes.load(path, ("evaluation.protocol=official",))
    check_splits(official, splits)
    with pytest.raises(ValueError, match="defines queries and gallery"):
        check_splits(official, named)


@pytest.mark.parametrize(
    "setting",
    [
        "protocol=offical",
        "distance=l2",
        "prefixes=[0]",
        "metrics=[ndcg@x]",
        "rerank=reciprocal",
        "rerank={name: k_reciprocal, k3: 1}",
    ],
)
def test_what_is_no_evaluation(path, setting) -> None:
    with pytest.raises(recipes.RecipeError, match=setting.split("=")[0]):
        recipes.load(path, (f"evaluation.{setting}",))


@pytest.fixture
def archive(monkeypatch, tmp_path):
    """Loads a recipe of the papers for an archive of ten classes."""

    def load(name: str):
        data = name.partition("/")[0]
        getattr(stand_ins, data)(tmp_path)
        loader = partial(DATASETS[data].value, counts=None)
        stand_ins.stand_in(monkeypatch, data, loader)
        recipe = recipes.load(name, (f"data.path={tmp_path}",))
        backbone = backbones.small_convnet((16, 16, 3), filters=(4, 8))
        model = methods.baseline(backbone, embedding_dim=4)
        return recipe, model, data_of(recipe)

    return load


def phrase(recipe, after, images: int) -> str:
    """What the summary of a run says of its queries."""
    nothing = dict.fromkeys(
        (
            "before", "best_epoch", "monitored", "divisions", "seconds",
            "images_per_second", "interrupted", "test_set", "environment",
        )
    )  # fmt: skip
    outcome = runs.Outcome(
        recipe=recipe, images={"test": images}, after=after, **nothing
    )
    return outcome.protocol_phrase()


@pytest.mark.slow
def test_vehicleid_has_one_image_of_each_vehicle_in_its_gallery(
    archive,
) -> None:
    recipe, model, splits = archive("vehicleid/divide_and_conquer")
    vehicles = len(splits.test.classes)
    embeddings = evaluation.embed(model, splits.test)
    for split in ("test", "small", "medium", "large"):
        found = measure(recipe, model, splits, split)
        assert (found.gallery_size, found.num_draws) == (vehicles, 10)
        assert found.num_queries == 10 * (len(splits.test) - vehicles)
        # By hand: the mean over draws of the share with the nearest vehicle.
        labels, hits = splits.part(split).labels, []
        for draw in evaluation.one_per_class(labels):
            scores = embeddings[draw.queries] @ embeddings[draw.gallery].T
            nearest = labels[draw.gallery][scores.argmax(axis=1)]
            hits.append(np.mean(nearest == labels[draw.queries]))
        assert found["recall@1"] == pytest.approx(np.mean(hits), abs=1e-6)
    said = phrase(recipe, found, len(splits.test))
    assert said.startswith("a random image of each class the gallery")
    assert said.endswith("the mean of 10 draws")
    with pytest.raises(ValueError, match="'large'.*Received: name='huge'"):
        measure(recipe, model, splits, "huge")


def test_in_shop_has_queries_and_a_gallery(archive) -> None:
    recipe, model, splits = archive("inshop/baseline")
    found = measure(recipe, model, splits)
    gallery = len(splits.gallery_rows)
    assert 0 < gallery < len(splits.test)
    assert found.gallery_size == gallery
    said = phrase(recipe, found, len(splits.test))
    assert said == f"queries among a gallery of {gallery}"
