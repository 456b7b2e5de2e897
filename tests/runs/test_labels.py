"""Runs with several labels an image, and with levels of a hierarchy."""

import csv
from pathlib import Path

import numpy as np
import pytest

from keras_dml import evaluation, recipes, runs
from keras_dml.data import MultiLabelBalanced
from keras_dml.reports import Run, figures_of
from keras_dml.reports.page import explorer
from keras_dml.runs.folder import load_model, load_outcome
from keras_dml.runs.measuring import check_splits
from tests.recipes.builds import data_of, model_of, sampler_of
from tests.runs.small_run import write_images

RECIPE = """
name: birds
data: {{name: table, path: {path}, {columns}}}
backbone: {{name: small_convnet, input_shape: [16, 16, 1]}}
method: {{name: baseline, loss: contrastive, embedding_dim: 8}}
batches: {{classes_per_batch: 2, images_per_class: 3}}
epochs: 1
evaluation: {{metrics: [recall@1, macro/map@r], {asked}}}
"""

SPECIES = "label: species, levels: [species, genus]"
TAGS = "label: tags, separator: ;"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Species in genera; and tags, of which some images have none."""
    folder = tmp_path_factory.mktemp("birds")
    write_images(folder / "images")
    files = sorted((folder / "images").glob("*/*.png"))
    header = ["path", "species", "genus", "tags", "split"]
    tables: dict[str, list[list[str]]] = {"species": [], "tags": []}
    for row, file in enumerate(files):
        species, image = divmod(row, 6)
        tags = {f"shape {species % 3}", f"color {image % 4}"} if image else ()
        whole = ("train", "train", "validation", "test")[species % 4]
        cells = [file.relative_to(folder), species, species // 8,
                 ";".join(tags)]  # fmt: skip
        split = ("train", "train", "test", "validation")[row % 4]
        tables["species"].append([*map(str, cells), whole])
        tables["tags"].append([*map(str, cells), split])
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as opened:
            csv.writer(opened).writerows([header, *rows])
    return folder


def recipe_of(folder: Path, columns: str, asked: str = "", *settings: str):
    name = "tags" if columns == TAGS else "species"
    path = folder / "recipe.yaml"
    path.write_text(
        RECIPE.format(path=folder / f"{name}.csv", columns=columns, asked=asked)
    )
    return recipes.load(path, settings)


@pytest.mark.slow
def test_label_sets_work_from_recipe_to_figures(folder) -> None:
    recipe = recipe_of(folder, TAGS, "relevance: jaccard", "relation_rule=all")
    splits = data_of(recipe)
    assert isinstance(sampler_of(recipe, splits.train), MultiLabelBalanced)
    assert model_of(recipe).objective.relation_rule == "all"
    run = folder / "tags"
    runs.train(recipe, run, verbose=0)
    model = load_model(run)
    assert model.objective.relation_rule == "all"
    metrics = recipe.evaluation.metrics
    sets = [set(np.flatnonzero(row).tolist()) for row in splits.test.labels]
    expected = evaluation.evaluate(
        model, splits.test, labels=sets, metrics=metrics, relevance="jaccard"
    )
    outcome = load_outcome(run)
    assert dict(outcome.after) == dict(expected)
    assert expected.num_excluded  # Images without a tag.
    assert dict(runs.remeasure(run).results) == dict(expected)
    # The labels of each query are kept, for means over them.
    intervals = evaluation.bootstrap(outcome.after, num_resamples=20)
    assert intervals["macro/map@r"].estimate == pytest.approx(
        expected["macro/map@r"], abs=1e-6
    )
    assert all(figure.draw() for figure in figures_of(Run(run), 2))
    shown = explorer(Run(run), 2, 1)["images"]
    assert any(", " in called for called, *_ in shown.values())
    same = runs.Changes(runs.remeasure(run), runs.remeasure(run, which="last"))
    assert "color 2, shape 0" in str(same.every_query())


@pytest.mark.slow
def test_one_level_trains_and_all_are_measured(folder) -> None:
    one = recipe_of(folder, SPECIES, "levels: [genus]")
    splits = data_of(one)
    check_splits(one, splits)
    assert sorted(splits.levels) == ["genus", "species"]
    assert splits.levels["genus"].tolist() == (splits.test.labels // 8).tolist()
    values = runs.measure(one, model_of(one), splits)
    assert list(values) == ["genus/recall@1", "genus/macro/map@r"]
    recipe = recipe_of(folder, SPECIES)
    runs.train(recipe, folder / "species", verbose=0)
    test = data_of(recipe).test
    genus = test.labels // 8
    expected = evaluation.evaluate(
        load_model(folder / "species"),
        test,
        labels={"species": test.labels, "genus": genus},
        metrics=recipe.evaluation.metrics,
    )
    assert set(expected) > {"species/recall@1", "genus/macro/map@r"}
    outcome = load_outcome(folder / "species")
    assert dict(outcome.after) == dict(expected)
    assert dict(runs.remeasure(folder / "species").results) == dict(expected)
    assert outcome.monitored is not None
    values = evaluation.bootstrap(outcome.after, num_resamples=20)
    assert values["genus/macro/map@r"].estimate == pytest.approx(
        expected["genus/macro/map@r"], abs=1e-6
    )


@pytest.mark.parametrize(
    ("columns", "asked", "setting", "message"),
    [
        (SPECIES, "levels: [family]", "", "which has species, genus"),
        ("label: species", "levels: [genus]", "", "which has none"),
        (SPECIES, "relevance: any", "relation_rule=all", "several labels"),
        ("label: species", "relevance: shared", "", "several labels"),
        (TAGS, "levels: [tags]", "", "which has none"),
        (TAGS, "protocol: official", "", "must not be 'official'"),
        (TAGS, "monitor: map", "evaluation.metrics=[nmi]", "compare clusters"),
        (TAGS, "", "batches.hard_classes={}", "batches.hard_classes; and"),
        (TAGS, "", "method={name: divide_and_conquer}", "batches of its own"),
        (TAGS, "", "method.loss={name: proxy_nca, num_classes: auto}",
         "a weight for each class"),
    ],
)  # fmt: skip
def test_unfit_labels_raise(folder, columns, asked, setting, message):
    settings = (setting,) if setting else ()
    recipe = recipe_of(folder, columns, asked, *settings)
    splits = data_of(recipe)
    with pytest.raises(ValueError, match=message):
        check_splits(recipe, splits)
        sampler_of(recipe, splits.train)


def test_table_without_validation_rows_raises(folder) -> None:
    text = (folder / "tags.csv").read_text()
    other = folder / "other"
    other.mkdir()
    (other / "tags.csv").write_text(text.replace("validation", "train"))
    with pytest.raises(ValueError, match="with validation rows"):
        data_of(recipe_of(other, TAGS))
