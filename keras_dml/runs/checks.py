"""Checks of data, before time is spent on training."""

import numpy as np

from keras_dml.data import DataSplits
from keras_dml.recipes import Recipe
from keras_dml.utils.types import Rows


def check_splits(recipe: Recipe, splits: DataSplits) -> None:
    """Checks that some query has something to find, on both sides.

    Raises:
        ValueError: If no image of the validation or of the test classes
            has another one of its class to be found.
    """
    rows = np.arange(len(splits.validation))
    if not _has_pair(splits.validation.labels, rows, rows):
        raise ValueError(_alone(recipe, "validation", len(rows)))
    rows = np.arange(len(splits.test))
    queries = rows if splits.query_rows is None else splits.query_rows
    gallery = rows if splits.gallery_rows is None else splits.gallery_rows
    if not _has_pair(splits.test.labels, queries, gallery):
        raise ValueError(_alone(recipe, "test", len(rows)))


def _has_pair(labels: Rows, queries: Rows, gallery: Rows) -> bool:
    classes, counts = np.unique(labels[gallery], return_counts=True)
    found = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    own = np.isin(queries, gallery)
    return any(
        found.get(label, 0) > itself
        for label, itself in zip(labels[queries].tolist(), own, strict=True)
    )


def _alone(recipe: Recipe, role: str, images: int) -> str:
    path = getattr(recipe.data, "path", None)
    where = f"{recipe.data.name} at {path}" if path else recipe.data.name
    return (
        f"`data` of the recipe {recipe.name!r} must have two images of some "
        f"{role} class, one to be searched for and one to be found. "
        f"Received: {where}, where no two of the images of {role} classes "
        f"({images}) are of one class. Put the images of one class "
        "into one folder, or give them one label."
    )
