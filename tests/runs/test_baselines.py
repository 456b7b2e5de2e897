"""Runs of pretrained networks are compared with the untouched networks."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_dml import backbones, recipes, runs
from keras_dml.evaluation import evaluate_embeddings
from keras_dml.model import MetricModel
from keras_dml.model.head_start import example_batches
from keras_dml.model.projections import fit_projection
from keras_dml.runs import baselines
from keras_dml.runs.folder import load_outcome
from keras_dml.runs.outcome import Outcome
from keras_dml.runs.plan import Entry
from keras_dml.runs.tables import untouched_table
from tests.recipes.builds import data_of
from tests.runs.small_run import QUICK, write_recipe


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> tuple[str, keras.Model]:
    """The file of a network with pretrained-like weights."""
    keras.utils.set_random_seed(0)
    network = backbones.small_convnet((16, 16, 1), filters=(8, 16))
    rng = np.random.default_rng(0)
    for weight in network.weights:
        if len(weight.shape) == 1:
            values = keras.ops.convert_to_numpy(weight)
            weight.assign(values + 0.1 * rng.uniform(size=weight.shape))
    path = tmp_path_factory.mktemp("network") / "network.keras"
    network.save(path)
    return str(path), network


def recipe_of(tmp_path, network: str, *settings: str) -> recipes.Recipe:
    baseline = "method={name: baseline, embedding_dim: 6, loss: contrastive}"
    return recipes.load(
        write_recipe(tmp_path),
        (*QUICK, baseline, f"backbone.name={network}", *settings),
    )


def features_of(network: keras.Model, images) -> np.ndarray:
    """Pooled features, by hand."""
    pixels = np.stack([images.read(row) for row in range(len(images))])
    maps = network.predict(pixels.astype("float32"), verbose=0)
    return maps.mean(axis=(1, 2))


def test_run_of_a_pretrained_network_is_compared_with_its_features(
    pretrained, tmp_path, monkeypatch, capsys
) -> None:
    """One pass over the training images also starts the head."""
    passes = []

    def counted(model, examples):
        passes.append(len(examples))
        return example_batches(model, examples)

    monkeypatch.setattr(baselines, "example_batches", counted)
    monkeypatch.delattr(MetricModel, "start_head")
    path, network = pretrained
    recipe = recipe_of(tmp_path, path, "head_init=whitening")
    outcome = runs.train(recipe, tmp_path / "run", verbose=2)
    assert passes == [outcome.images["train"]]
    said = capsys.readouterr().out
    assert "of the untouched network and after training" in said
    splits = data_of(recipe)
    train, test = (
        features_of(network, splits.part(x)) for x in ("train", "test")
    )
    labels = splits.test.labels
    whole = evaluate_embeddings(
        test / np.linalg.norm(test, axis=1, keepdims=True), labels
    )
    projected = fit_projection(train, splits.train.labels, 6)
    x = projected(test)
    at_size = evaluate_embeddings(
        x / np.linalg.norm(x, axis=1, keepdims=True), labels
    )
    baseline = outcome.baseline
    assert baseline is not None
    assert baseline["projection"] == projected.name
    assert (baseline["dim"], baseline["num_features"]) == (6, 16)
    for name in ("recall@1", "map@r"):
        assert baseline["features"][name] == pytest.approx(
            whole[name], abs=0.02
        )
        assert outcome.before[name] == pytest.approx(at_size[name], abs=0.02)
    assert load_outcome(tmp_path / "run").baseline == baseline
    summary = (tmp_path / "run" / "summary.md").read_text()
    assert "The untouched network with its 16 numbers has " in summary
    assert (
        f"| metric | {projected.name.split(' with ')[0]} | after |" in summary
    )


def test_run_of_a_new_network_is_compared_with_random_weights(tmp_path) -> None:
    recipe = recipe_of(tmp_path, "small_convnet")
    outcome = runs.train(recipe, tmp_path / "run", verbose=0)
    assert outcome.baseline is None
    assert "| metric | before | after |" in outcome.summary()
    assert "untouched" not in outcome.summary()


@pytest.mark.parametrize(
    ("verdict", "is_said"),
    [
        ("worse", True),
        ("within the noise", True),
        ("lower, no interval", True),
        ("better", False),
        ("too few classes to tell", False),
        (None, False),
    ],
)
def test_summary_reports_a_loss_only_where_it_was_measured(
    verdict, is_said, tmp_path
) -> None:
    about = {"projection": "PCA", "dim": 6, "num_features": 16, "features": {}}
    verdicts = {} if verdict is None else {"map@r": verdict}
    recipe = recipe_of(tmp_path, "small_convnet")
    run = SimpleNamespace(
        baseline=about,
        recipe=recipe,
        verdicts=verdicts,
        before_title=lambda: "PCA",
    )
    lines = Outcome.baseline_lines(run)
    assert any("did not beat" in line for line in lines) == is_said


def test_untouched_table_has_the_metrics_of_all_rows() -> None:
    about = {"dim": 6, "num_features": 16}
    entries = [
        Entry(
            "a",
            seed,
            "",
            untouched={
                **about,
                "features": {"map@r": 0.5, "recall@1": 0.8},
                "before": {"recall@1": value, "nmi": 0.4},
            },
        )
        for seed, value in enumerate((0.6, 0.7))
    ]
    assert untouched_table(entries) == [
        ["model", "numbers", "recall@1"],
        ["untouched network", "16", "0.8000"],
        ["PCA or whitening of it", "6", "0.6500"],
    ]
    assert untouched_table([]) == []


def test_start_is_kept_and_reported_where_training_harms(
    pretrained, tmp_path
) -> None:
    recipe = recipe_of(
        tmp_path,
        pretrained[0],
        "optimizer={name: sgd, learning_rate: 1000.0}",
        "data.validation=0.5",
    )
    outcome = runs.train(recipe, tmp_path / "run", verbose=0)
    assert outcome.best_epoch == 0
    assert outcome.choice_line().startswith(
        "No epoch was better than the start"
    )
    assert any("did not beat" in x for x in outcome.baseline_lines())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["baseline"] == outcome.baseline


def test_guarded_run_reports_its_share(pretrained, tmp_path) -> None:
    recipe = recipe_of(
        tmp_path,
        pretrained[0],
        "guard=true",
        "optimizer={name: sgd, learning_rate: 0.05}",
        "data.validation=0.5",
    )
    outcome = runs.train(recipe, tmp_path / "run", verbose=0)
    share = outcome.share
    assert load_outcome(tmp_path / "run").share == share
    assert ("of the way from" in outcome.choice_line()) == (share is not None)
    best = runs.remeasure(tmp_path / "run", "validation").results
    assert best["map@r"] == pytest.approx(outcome.monitored, abs=1e-5)


def test_guard_of_a_run_requires_a_start_and_held_out_classes(
    pretrained, tmp_path
) -> None:
    for settings in (
        ("small_convnet", "guard=true"),
        (pretrained[0], "guard=true", "train_on=all"),
    ):
        recipe = recipe_of(tmp_path, *settings)
        with pytest.raises(ValueError, match="`guard` of a recipe requires"):
            runs.train(recipe, tmp_path / "run", verbose=0)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["head_init=random", "refit=true"])
def test_recipe_with_a_guard_requires_a_start(
    pretrained, tmp_path, setting
) -> None:
    with pytest.raises(recipes.RecipeError, match="a guard requires"):
        recipe_of(tmp_path, pretrained[0], "guard=true", setting)
