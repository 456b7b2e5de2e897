"""Data that a model cannot take get the reason, and a way out, at once."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from tests.model.test_keras_contract import LABELS, small, vectors
from tests.model.test_traps import FEEDS

SEVERAL = np.eye(6, dtype="int64")[LABELS]
SEVERAL[:, 0] = 1


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("feed", FEEDS)
def test_several_labels_in_a_row_are_not_reduced_to_one(feed, dtype) -> None:
    with pytest.raises(ValueError, match=r"astype\(bool\)") as error:
        small().fit(**FEEDS[feed](vectors(), SEVERAL.astype(dtype)), verbose=0)
    # The values of a dataset are not known yet, so it gets both ways.
    is_seen = feed not in ("dataset", "dict")
    assert ("argmax" in str(error.value)) is not is_seen


@pytest.mark.parametrize(
    ("table", "way"),
    [
        (SEVERAL, r"astype\(bool\)"),
        (SEVERAL.astype("float32"), r"astype\(bool\)"),
        (SEVERAL * LABELS[:, None], r"labels\[:, 0\]"),
    ],
)
def test_loss_says_how_to_convert_a_table(table, way) -> None:
    embeddings = np.ones((48, 4), "float32")
    with pytest.raises(ValueError, match=way) as error:
        losses.TripletLoss()(table, embeddings)
    assert "argmax" not in str(error.value)


@pytest.mark.parametrize("feed", ["arrays", "plain arrays", "dataset"])
def test_as_many_labels_as_examples_are_no_relation(feed) -> None:
    table = np.zeros((48, 48), "int64")
    table[:, :6] = SEVERAL
    data = FEEDS[feed](vectors(), table)
    if feed == "dataset":
        batches = tf.data.Dataset.from_tensors((vectors(), table))
        data = {"x": batches}
    with pytest.raises(ValueError, match=r"relation matrix.*astype\(bool\)"):
        small().fit(**data, verbose=0)


def test_booleans_of_several_labels_are_trained_on() -> None:
    model = small()
    history = model.fit(vectors(), SEVERAL.astype(bool), verbose=0).history
    assert np.isfinite(history["loss"]).all()
