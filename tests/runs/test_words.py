import dataclasses
import math

import numpy as np
import pytest

from keras_dml import backbones, evaluation, methods, recipes
from keras_dml.runs.words import before_training, verdicts
from tests.recipes.builds import data_of
from tests.runs.small_run import write_recipe


def results(noise: float, classes: int = 20, seed: int = 0):
    """Of embeddings around a centre for each class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 6)
    centres = np.random.default_rng(9).standard_normal((classes, 8))
    x = centres[labels] + noise * rng.standard_normal((len(labels), 8))
    metrics = ("recall@1", "map@r", "nmi")
    return evaluation.evaluate_embeddings(x, labels, metrics=metrics)


def test_verdicts_are_those_of_the_paired_comparison() -> None:
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


def test_few_classes_have_no_verdict() -> None:
    far, close = results(1.2, classes=4), results(0.1, classes=4)
    gain = evaluation.compare(far, close, units="classes")["map@r"]
    assert math.isnan(gain.low)
    assert verdicts(far, close)["map@r"] == "too few classes to tell"


def test_without_values_by_query_there_is_no_interval() -> None:
    far, close = results(1.2), results(0.4)
    before = dataclasses.replace(far, per_query={})
    found = verdicts(before, close)
    assert found == dict.fromkeys(close, "higher, no interval")


@pytest.mark.parametrize("held_out", [True, False])
def test_what_is_said_before_training(held_out, tmp_path) -> None:
    settings = (
        "method={name: baseline, loss: contrastive, embedding_dim: 8}",
        "evaluation.metrics=[recall@1]", "evaluation.every=2",
    )  # fmt: skip
    recipe = recipes.load(write_recipe(tmp_path), settings)
    splits = data_of(recipe)
    if not held_out:
        none = splits.validation.select([])
        splits = dataclasses.replace(splits, validation=none)
    network = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = methods.baseline(network, embedding_dim=8)
    data, about, device, measured = before_training(recipe, splits, model, 2)
    kept = "2 classes, 12 examples" if held_out else "none"
    assert data == (
        f"Data: {recipe.source}; train 4 classes, 24 examples; "
        f"validation {kept}; test 6 classes, 36 examples"
    )
    assert about == (
        f"Network: small_convnet with baseline, {model.count_params():,} "
        "weights, embeddings of 8 dimensions"
    )
    assert device.endswith(", 2 replicas, float32")
    chosen = (
        "val_map@r on the validation images after every 2 epochs, to choose "
        "the epoch"
        if held_out
        else "nothing while training, as no classes are held out"
    )
    assert measured == (
        f"Measured: {chosen}; recall@1 on the test images, which are never "
        "trained on, before and after training"
    )
