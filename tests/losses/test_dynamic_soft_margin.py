"""The histogram of the dynamic soft margin loss: kept, saved, protected."""

import keras
import numpy as np
import pytest

from keras_dml import losses, methods
from tests.losses.oracle import LABELS, batch, value_and_gradient

LABEL = np.array(LABELS["balanced"])


def built(**arguments):
    loss = losses.DynamicSoftMarginLoss(**arguments)
    loss.build(keras.layers.Layer(), 5)
    return loss


def batches():
    return [batch(LABELS["balanced"], seed=s).astype("float32") for s in (0, 1)]


def test_histogram_averages_the_batches() -> None:
    first, second = batches()
    each = []
    for x in (first, second):
        loss = built()
        loss.remember(LABEL, x)
        each.append(np.array(loss.histogram))
        assert each[-1].sum() == pytest.approx(1)
    loss = built(momentum=0.3)
    loss.remember(LABEL, first)
    # The batch counts when it is compared, and is remembered but once.
    before = value_and_gradient(loss, LABEL, second)
    mixed = 0.7 * each[0] + 0.3 * each[1]
    np.testing.assert_array_equal(loss.histogram, each[0])
    loss.remember(LABEL, second)
    np.testing.assert_allclose(loss.histogram, mixed, atol=1e-6)
    loss.histogram.assign(each[0])
    np.testing.assert_array_equal(
        value_and_gradient(loss, LABEL, second)[0], before[0]
    )


def test_unusable_batches_leave_the_histogram_unchanged() -> None:
    first, second = batches()
    loss = built()
    loss.remember(LABEL, first)
    kept = np.array(loss.histogram)
    loss.remember(LABEL, second, when=keras.ops.zeros((), "bool"))
    loss.remember(np.arange(9), second)
    loss.remember(LABEL, np.where(second > 1, np.nan, second))
    np.testing.assert_array_equal(loss.histogram, kept)


@pytest.mark.slow
def test_histogram_fills_in_training_and_is_saved(
    tiny_backbone, tmp_path
) -> None:
    loss = losses.DynamicSoftMarginLoss(num_bins=20)
    model = methods.baseline(tiny_backbone, embedding_dim=4, loss=loss)
    model.compile("sgd")
    x = np.random.default_rng(0).uniform(0, 255, (12, 16, 16, 1))
    labels = np.arange(12) % 4
    model.fit(x, {"label": labels}, batch_size=12, verbose=0)
    filled = np.array(loss.histogram)
    assert filled.sum() == pytest.approx(1)
    model.evaluate(x, {"label": labels}, batch_size=12, verbose=0)
    np.testing.assert_array_equal(loss.histogram, filled)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(copy.objective.loss.histogram, filled)


def test_loss_without_an_owner_raises() -> None:
    with pytest.raises(RuntimeError, match="DynamicSoftMarginLoss owns"):
        losses.DynamicSoftMarginLoss()(LABEL, batches()[0])
