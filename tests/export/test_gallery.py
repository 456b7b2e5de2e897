"""Tests of what may be searched in."""

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


def test_ids_are_rows_by_default() -> None:
    gallery = Gallery(ROWS, [7, 7, 8, 9])
    assert gallery.ids.tolist() == [0, 1, 2, 3]
    assert (gallery.ids.dtype, gallery.labels.dtype) == (np.int64, np.int64)


def test_large_ids_are_kept() -> None:
    ids = 2**62 + np.arange(4)
    np.testing.assert_array_equal(Gallery(ROWS, ids, ids).ids, ids)


@pytest.mark.parametrize(
    "texts",
    [["a", "b", "c", "é"], np.array(["a", "b", "c", "é"]),
     np.array(["a", "b", "c", "é"], object), [b"a", b"b", b"c", "é"]],
)  # fmt: skip
def test_texts_are_utf8(texts: Any) -> None:
    wanted = [b"a", b"b", b"c", "é".encode()]
    assert Gallery(ROWS, texts, texts).labels.tolist() == wanted
    assert Gallery(ROWS, texts, texts).ids.tolist() == wanted


def test_names_of_files_that_are_not_utf8_are_readable() -> None:
    gallery = Gallery(np.eye(2), ["a\udc80", "\ud800"])
    assert gallery.labels.tolist() == [rb"a\udc80", rb"\ud800"]


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
def test_what_does_not_fit_is_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Gallery(**{"embeddings": ROWS, "labels": [0, 1, 2, 3], **arguments})


def test_images_are_embedded_and_named(model: keras.Model) -> None:
    pixels = random_images(4, 18, 18)
    images = ImageSet(pixels, [5, 6, 5, 6], names={5: "five", 6: "six"})
    gallery = as_gallery(model, images)
    np.testing.assert_array_equal(gallery.embeddings, embed(model, images))
    assert gallery.labels.tolist() == [b"five", b"six", b"five", b"six"]
    unnamed = as_gallery(model, ImageSet(pixels, [5, 6, 5, 6]))
    assert unnamed.labels.tolist() == [5, 6, 5, 6]


def test_anything_with_embeddings_and_labels_will_do(model) -> None:
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


def test_an_array_is_no_gallery(model: keras.Model) -> None:
    with pytest.raises(ValueError, match="`gallery` of export(.|\n)*ndarray"):
        as_gallery(model, ROWS)


def test_an_index_is_a_gallery(model: keras.Model) -> None:
    from keras_dml.search import Index

    images = ImageSet(random_images(4, 18, 18), [5, 6, 5, 6])
    index = Index.build(model, images)
    index.remove(0)
    index.calibrate(images)
    gallery = as_gallery(model, index)
    np.testing.assert_allclose(
        gallery.embeddings, embed(model, images)[1:], atol=1e-6
    )
    assert gallery.ids.tolist() == [1, 2, 3]
    assert gallery.labels.tolist() == [6, 5, 6]
    assert gallery.threshold == index.threshold.value


def test_own_keys_of_an_index_are_the_ids(model: keras.Model) -> None:
    from keras_dml.search import Index

    columns = {"label": [5, 6, 5, 6]}
    index = Index(ROWS, columns, keys=["p", "q", "r", "s"])
    index.remove("q")
    assert as_gallery(model, index).ids.tolist() == [b"p", b"r", b"s"]
    with pytest.raises(ValueError, match="metric='dot'"):
        as_gallery(model, Index(ROWS, columns, metric="dot"))
