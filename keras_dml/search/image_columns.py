"""Columns of an index that a set of images brings along."""

import os
from typing import Any

from keras_dml.data import ImageSet


def image_columns(given: Any, images: ImageSet) -> dict[str, list[Any]]:
    """What is known of each image.

    Args:
        given: What the user gave; only an `ImageSet` has labels.
        images: The images of it.

    Returns:
        "path", absolute, of files; "label", "name", "source" and "box" of
        a set that has them.
    """
    columns: dict[str, list[Any]] = {}
    if images.paths is not None:
        columns["path"] = [os.path.abspath(path) for path in images.paths]
    if not isinstance(given, ImageSet):
        return columns
    columns["label"] = images.labels.tolist()
    if images.names:
        columns["name"] = [images.names.get(x) for x in columns["label"]]
    if images.ids is not None:
        columns["source"] = list(images.ids)
    if images.boxes is not None:
        columns["box"] = images.boxes.tolist()
    return columns
