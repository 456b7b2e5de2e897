"""Texts of a run: verdicts, definitions, speeds, first lines."""

import dataclasses
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_dml import backbones, evaluation, methods, recipes
from keras_dml.evaluation import METRICS
from keras_dml.runs.outcome import Outcome, definition, verdicts
from keras_dml.runs.training import before_training
from tests.recipes.builds import data_of
from tests.runs.small_run import METHODS, write_recipe

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def results(noise: float, classes: int = 20, seed: int = 0):
    """Results of embeddings around one center per class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 6)
    centres = np.random.default_rng(9).standard_normal((classes, 8))
    x = centres[labels] + noise * rng.standard_normal((len(labels), 8))
    metrics = ("recall@1", "map@r", "nmi")
    return evaluation.evaluate_embeddings(x, labels, metrics=metrics)


def test_verdicts_follow_the_paired_comparison() -> None:
    close, far, again = results(0.4), results(1.2), results(1.2, seed=1)
    assert verdicts(far, close) == {
        "recall@1": "better", "map@r": "better", "nmi": "higher, no interval"
    }  # fmt: skip
    assert verdicts(close, far) == {
        "recall@1": "worse", "map@r": "worse", "nmi": "lower, no interval"
    }  # fmt: skip
    gain = evaluation.compare(far, again, units="classes")["map@r"]
    assert gain.low < 0 < gain.high
    assert verdicts(far, again)["map@r"] == "within the noise"
    assert verdicts(far, far)["nmi"] == "equal, no interval"
    without = dataclasses.replace(far, per_query={})
    expected = dict.fromkeys(close, "higher, no interval")
    assert verdicts(without, close) == expected


def test_few_classes_have_no_verdict() -> None:
    far, close = results(1.2, classes=4), results(0.1, classes=4)
    gain = evaluation.compare(far, close, units="classes")["map@r"]
    assert math.isnan(gain.low)
    assert verdicts(far, close)["map@r"] == "too few classes to tell"


def test_reference_defines_every_metric() -> None:
    page = PAGE.read_text()
    for name, entry in METRICS.items():
        value = entry.value
        if value.__module__.startswith("keras_dml."):
            definition = re.escape(entry.definition)
            section = rf"### `{name}`\n\n{definition}[. (].*\n\n::: "
            assert re.search(section, page, re.I), name
            assert f"::: {value.__module__}.{value.__name__}\n" in page


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("recall@1000", "among the 1000 nearest"),
        ("recall@1", "whose nearest neighbor is of"),
        ("map@5", "divided by 5 or by the number of"),
        ("pcf@0.9", "more than 0.9 of"),
        ("zzz@3", "not registered here"),
    ],
)
def test_definition_names_the_number(name, words) -> None:
    assert words in definition(name)
    assert definition("64/species/recall@3") == definition("recall@3")


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(1.4, "1 image"), (0.3, "0 images"), (1.6, "2 images"), (90, "90 images")],
)
def test_speeds_are_counted_in_images(speed, expected) -> None:
    run = SimpleNamespace(seconds={"training": 2.0}, images_per_second=speed)
    assert Outcome.cost_lines(run)[-1].endswith(f", at {expected} per second")


@pytest.mark.parametrize("held_out", [True, False])
def test_first_lines_announce_the_run(held_out, tmp_path) -> None:
    settings = (
        METHODS["baseline"], "evaluation.metrics=[recall@1]",
        "evaluation.every=2",
    )  # fmt: skip
    recipe = recipes.load(write_recipe(tmp_path), settings)
    splits = data_of(recipe)
    part, chosen = "2 classes, 12 examples", "val_map@r on the validation"
    if not held_out:
        none = splits.validation.select([])
        splits = dataclasses.replace(splits, validation=none)
        part, chosen = "none", "nothing while training"
    network = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = methods.baseline(network, embedding_dim=8)
    data, about, device, measured = before_training(recipe, splits, model, 2)
    assert data == (
        f"Data: {recipe.source}; train 4 classes, 24 examples; "
        f"validation {part}; test 6 classes, 36 examples"
    )
    assert f"baseline, {model.count_params():,} weights" in about
    assert about.endswith("embeddings of 8 dimensions")
    assert device.endswith(", 2 replicas, float32")
    assert measured.startswith(f"Measured: {chosen}")
    assert ("after every 2 epochs" in measured) == held_out
