"""`num_classes: auto` is the number of training classes."""

from pathlib import Path

import numpy as np
import pytest

from keras_dml import data, runs
from keras_dml.recipes import load
from keras_dml.recipes.sections import fill_counts
from tests.conftest import blobs
from tests.recipes.builds import batches_of, callbacks_of, model_of, sampler_of
from tests.recipes.stand_ins import stand_in

RECIPES = Path(__file__).parents[2] / "recipes" / "glyphs"
BETA = "{name: margin, learn_beta: true, num_classes: auto}"
SMALL = (
    "backbone.input_shape=[16, 16, 1]",
    "batches={classes_per_batch: 3, images_per_class: 3, steps_per_epoch: 2}",
    "epochs=1",
    "evaluation={metrics: [recall@1, map@r]}",
)


@pytest.fixture
def splits() -> data.DataSplits:
    """Six, five and four classes, with numbers far from 0."""
    sets = [
        data.ImageSet(part.images, part.labels * 7 + start)
        for part, start in (
            (blobs(6), 1), (blobs(5, seed=1), 100), (blobs(4, seed=2), 200),
        )
    ]  # fmt: skip
    return data.DataSplits(*sets, "blobs")


def build(name: str, splits: data.DataSplits, *settings: str):
    recipe = load(RECIPES / f"{name}.yaml", (*SMALL, *settings))
    batches = sampler_of(recipe, splits.train)
    return recipe, batches, model_of(recipe, batches)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "size", "key", "count"),
    [
        ("baseline", "embedding_dim=4", "method.loss", 1),
        ("attentive_grouping", "num_groups=2", "method.loss", 2),
        ("divide_and_conquer", "num_learners=2", "method.loss", 3),
        ("dcml", "num_compositors=2", "method.loss", 3),
        ("diva", "embedding_dim=8", "method.loss", 1),
        ("diva", "embedding_dim=8", "method.auxiliary_loss", 2),
    ],
)
def test_auto_gives_a_beta_for_each_training_class(
    method, size, key, count, splits
) -> None:
    recipe, batches, model = build(
        method, splits, f"method.{size}", f"{key}={BETA}"
    )
    betas = [v for v in model.trainable_variables if "/loss/beta" in v.path]
    assert [v.shape for v in betas] == [(6,)] * count
    if method not in ("baseline", "divide_and_conquer"):
        return  # Their batches are of the one or the other kind.
    before = [v.numpy() for v in betas]
    # Tracing takes longer than the steps.
    model.run_eagerly = not model.objective.learner_variables()
    history = model.fit(
        batches_of(recipe, splits.train, batches, model.input_shape),
        callbacks=callbacks_of(recipe, splits.train, batches),
        verbose=0,
    )
    # A class id that is out of range would make it NaN.
    assert np.isfinite(history.history["loss"]).all()
    moved = [
        not np.array_equal(v.numpy(), old)
        for v, old in zip(betas, before, strict=True)
    ]
    assert any(moved)


def test_auto_counts_the_examples_of_each_class(splits) -> None:
    few = splits.train.select(range(2, len(splits.train)))
    uneven = data.DataSplits(few, splits.validation, splits.test, "uneven")
    loss = "{name: dynamic_arc_face, num_classes: auto, class_counts: auto}"
    *_, model = build("baseline", uneven, f"method.loss={loss}")
    counts = np.unique(few.labels, return_counts=True)[1].tolist()
    assert len(set(counts)) == 2
    assert model.objective.loss.class_counts == counts
    explicit_loss = (
        f"{{name: dynamic_arc_face, num_classes: auto, class_counts: {counts}}}"
    )
    *_, model = build("baseline", uneven, f"method.loss={explicit_loss}")
    assert model.objective.loss.class_counts == counts


@pytest.mark.slow
def test_run_with_auto_is_measured_again(splits, tmp_path, monkeypatch) -> None:
    stand_in(monkeypatch, "glyphs", lambda: splits)
    recipe = load(RECIPES / "baseline.yaml", (*SMALL, f"method.loss={BETA}"))
    outcome = runs.train(recipe, tmp_path / "run", verbose=0)
    assert "num_classes: auto" in (tmp_path / "run/recipe.yaml").read_text()
    again = runs.remeasure(tmp_path / "run")
    assert dict(again.results) == dict(outcome.after)


def test_too_few_classes_raise(splits) -> None:
    loss = "method.loss={name: proxy_nca, num_classes: 5}"
    with pytest.raises(ValueError, match="6 .*Received: num_classes=5.*auto"):
        build("baseline", splits, loss)


def test_auto_is_filled_in_at_any_depth() -> None:
    config = {
        "a": [{"num_classes": "auto"}, {"num_classes": 3}],
        "b": {"class_name": "X", "config": {"num_classes": "auto"}},
        "auto": "auto",
    }
    assert fill_counts(config, [1] * 7) == {
        "a": [{"num_classes": 7}, {"num_classes": 3}],
        "b": {"class_name": "X", "config": {"num_classes": 7}},
        "auto": "auto",
    }


def test_other_losses_leave_labels_alone(splits) -> None:
    recipe = load(RECIPES / "baseline.yaml", SMALL)
    batches = sampler_of(recipe, splits.train)
    np.testing.assert_array_equal(batches.labels, splits.train.labels)
    dataset = batches_of(recipe, splits.train, batches, (None, 16, 16, 1))
    labels = np.concatenate([y["label"] for _, y in dataset])
    assert set(labels) <= set(splits.train.labels.tolist())


def test_auto_works_with_a_class_share(splits) -> None:
    loss = "{name: arc_face, num_classes: auto, class_share: 0.4}"
    settings = (f"method.loss={loss}", "accumulate=2", "gather=none")
    _, _, model = build("baseline", splits, *settings)
    objective_loss = model.objective.loss
    assert (objective_loss.num_classes, objective_loss.sampled.count) == (6, 2)
    assert (model.accumulate, model.gather) == (2, "none")
