"""Galleries of exports."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.export.gallery import Gallery, as_gallery
from tests.export.serving import random_images

ROWS = np.eye(4, 8, dtype="float32")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([2**62, 1, 2, 3], [2**62, 1, 2, 3]),
        (np.array(["a", "b", "c", "é"]), [b"a", b"b", b"c", "é".encode()]),
        ([b"a", "b", "c", "é"], [b"a", b"b", b"c", "é".encode()]),
        # Names of files may hold what UTF-8 does not.
        (["a\udc80", "\ud800", "", "c"], [rb"a\udc80", rb"\ud800", b"", b"c"]),
    ],
)
def test_ids_and_labels_are_integers_or_utf8(values: Any, column: Any) -> None:
    gallery = Gallery(ROWS, values, values)
    assert gallery.labels.tolist() == gallery.ids.tolist() == column
    assert Gallery(ROWS, values).ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [1, 2, 3]}, "`labels` of Gallery(.|\n)*4 embeddings"),
        ({"labels": [1, 2, 3, 4.5]}, "`labels` of Gallery must be integers"),
        ({"ids": ["a", "b", "c", None]}, "`ids` of Gallery must be integers"),
        ({"embeddings": ROWS * np.nan}, "`embeddings` of Gallery(.|\n)*NaN"),
        ({"embeddings": ROWS[0]}, "`embeddings` of Gallery"),
        ({"threshold": float("nan")}, "`threshold` of Gallery"),
    ],
)
def test_unfit_arguments_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gallery(**{"embeddings": ROWS, "labels": [0, 1, 2, 3], **arguments})


def test_gallery_of_images_has_embeddings_and_names(model: keras.Model) -> None:
    pixels = random_images(4, 18, 18)
    images = ImageSet(pixels, [5, 6, 5, 6], names={5: "five", 6: "six"})
    gallery = as_gallery(model, images)
    np.testing.assert_array_equal(gallery.embeddings, embed(model, images))
    assert gallery.labels.tolist() == [b"five", b"six", b"five", b"six"]
    unnamed = as_gallery(model, ImageSet(pixels, [5, 6, 5, 6]))
    assert unnamed.labels.tolist() == [5, 6, 5, 6]


def test_any_object_with_embeddings_and_labels_is_a_gallery(model) -> None:
    index = SimpleNamespace(
        embeddings=ROWS, labels=[1, 2, 3, 4], ids=[9, 8, 7, 6], threshold=0.25
    )
    gallery = as_gallery(model, index)
    assert gallery.ids.tolist() == [9, 8, 7, 6] and gallery.threshold == 0.25
    index.threshold = SimpleNamespace(value=0.75)
    assert as_gallery(model, index).threshold == 0.75
    del index.ids, index.threshold
    gallery = as_gallery(model, index)
    assert gallery.ids.tolist() == [0, 1, 2, 3] and gallery.threshold is None


def test_index_is_a_gallery(model: keras.Model) -> None:
    from keras_dml.search import Index

    images = ImageSet(random_images(4, 18, 18), [5, 6, 5, 6])
    index = Index.build(model, images)
    index.remove(0)
    index.calibrate(images, criterion="eer")
    gallery = as_gallery(model, index)
    np.testing.assert_allclose(
        gallery.embeddings, embed(model, images)[1:], atol=1e-6
    )
    assert gallery.ids.tolist() == [1, 2, 3]
    assert gallery.labels.tolist() == [6, 5, 6]
    assert gallery.threshold == index.threshold.value
    index = Index(ROWS, {"label": [5, 6, 5, 6]}, keys=["p", "q", "r", "s"])
    index.remove("q")
    assert as_gallery(model, index).ids.tolist() == [b"p", b"r", b"s"]
    other = Index(ROWS, {"label": [5, 6, 5, 6]}, metric="dot")
    for value, message in (
        (other, "metric='dot'"),
        (ROWS, "`gallery` of export(.|\n)*ndarray"),
    ):
        with pytest.raises(ValueError, match=message):
            as_gallery(model, value)
