"""Two models on the same images, query by query."""

import numpy as np
import pytest

from keras_dml import recipes
from keras_dml.data import ImageSet
from keras_dml.evaluation import evaluate_embeddings
from keras_dml.runs.measuring import Changes, Measurement
from tests.runs.small_run import write_unread

LABELS = np.repeat(np.arange(12), 4)


@pytest.fixture
def recipe(tmp_path):
    return recipes.load(write_unread(tmp_path))


def measurement(recipe, noise: float, files: str = "a") -> Measurement:
    rng = np.random.default_rng(int(10 * noise))
    centres = np.random.default_rng(0).standard_normal((12, 6))[LABELS]
    x = centres + noise * rng.standard_normal(centres.shape)
    images = ImageSet(
        [f"{files}/{label}/{row}.jpg" for row, label in enumerate(LABELS)],
        LABELS,
        names={label: f"class {label}" for label in range(12)},
        ids=[f"{files}{row}" for row in range(len(LABELS))],
    )
    return Measurement(
        recipe, images, evaluate_embeddings(x, LABELS, metrics="map@r")
    )


@pytest.fixture
def changes(recipe) -> Changes:
    return Changes(measurement(recipe, 1.5), measurement(recipe, 0.6))


def gains(changes: Changes) -> np.ndarray:
    return changes.second.per_query["map@r"] - changes.first.per_query["map@r"]


def test_queries_are_counted_and_listed(changes) -> None:
    better = sum(gain > 0 for gain in gains(changes))
    worse = sum(gain < 0 for gain in gains(changes))
    assert changes.counts("map@r") == (better, worse, 48 - better - worse)
    assert better > worse > 0
    header, *rows = changes.every_query()
    assert header[3:] == ["map@r first", "map@r second"]
    assert [int(row[0]) for row in rows] == list(range(48))
    values = np.array([[float(x) for x in row[3:]] for row in rows])
    assert values[:, 0].mean() == pytest.approx(changes.first["map@r"])
    np.testing.assert_array_equal(values[:, 1] - values[:, 0], gains(changes))


@pytest.mark.parametrize("better", [True, False])
def test_queries_that_changed_most_come_first(changes, better) -> None:
    header, *rows = changes.table("map@r", better, top=3)
    assert header == ["row", "image", "class", "first", "second"]
    listed = [int(row[0]) for row in rows]
    sign = 1 if better else -1
    expected = sorted(range(48), key=lambda q: -sign * gains(changes)[q])[:3]
    assert gains(changes)[listed] == pytest.approx(gains(changes)[expected])
    for row, cells in zip(listed, rows, strict=True):
        both = changes.first, changes.second
        assert cells[1:] == [
            f"a/{LABELS[row]}/{row}.jpg",
            f"class {LABELS[row]}",
            *(f"{x.per_query['map@r'][row]:.4f}" for x in both),
        ]


def test_rows_refer_to_the_images(recipe) -> None:
    """The first image is alone in its class, so it is no query."""
    images = ImageSet(np.zeros((5, 4, 4), "uint8"), [9, 0, 0, 1, 1])
    bad, good = (
        evaluate_embeddings(np.eye(3)[x], images.labels, metrics="mrr")
        for x in ([2, 0, 1, 1, 1], [2, 0, 0, 1, 1])
    )
    both = (Measurement(recipe, images, x) for x in (bad, good))
    _, first, *_ = Changes(*both).table("mrr", better=True, top=1)
    row = int(first[0])
    position = list(good.query_rows).index(row)
    values = (f"{x.per_query['mrr'][position]:.4f}" for x in (bad, good))
    assert first[1:] == ["", str(images.labels[row]), *values]


def test_other_images_raise(recipe) -> None:
    first, second = measurement(recipe, 1.0), measurement(recipe, 1.0, "b")
    with pytest.raises(ValueError, match="on the same images") as error:
        Changes(first, second)
    assert "image_folder at unread" in str(error.value)
