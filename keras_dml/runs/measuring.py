"""What a recipe measures on its data, and whether that can be measured."""

from typing import Any

import keras
import numpy as np

from keras_dml import data, evaluation
from keras_dml.evaluation._evaluate import check_evaluation
from keras_dml.recipes import Recipe
from keras_dml.utils.types import Rows


def measure(
    recipe: Recipe,
    model: keras.Model,
    splits: data.DataSplits,
    split: str = "test",
) -> evaluation.Results:
    """Measures a model on one of the splits with the metrics of a recipe.

    Unless the recipe has a protocol, test images are measured as the data set
    defines it: which images are queries, and which form the gallery. Images of
    a query's class from its own camera do not count. Test images are measured
    at the levels of a hierarchy, others at the level that the model was trained
    with.
    """
    return evaluation.evaluate(
        model, splits.part(split), **_asked(recipe, splits, split)
    )


def _asked(
    recipe: Recipe, splits: data.DataSplits, split: str
) -> dict[str, Any]:
    """What is asked about one of the splits: arguments of `evaluate`."""
    asked = recipe.evaluation
    own: dict[str, Any] = {"protocol": asked.protocol}
    if split == "test":
        if asked.protocol is None:
            own["protocol"] = evaluation.Protocol(
                splits.query_rows, splits.gallery_rows
            )
        own["exclude"] = splits.cameras
        if splits.levels:
            own |= {"labels": splits.levels, "levels": asked.levels}
    return {
        "metrics": asked.metrics,
        "distance": asked.distance,
        "relevance": asked.relevance,
        "prefixes": asked.prefixes,
        "parts": asked.parts,
        "rerank": asked.rerank,
        **own,
    }


def check_splits(recipe: Recipe, splits: data.DataSplits) -> None:
    """Checks that some query has something to find, on both sides.

    Raises:
        ValueError: If no image of the validation or of the test classes has
            another one of its class to be found, or what is asked does not fit
            the data set: a protocol for those that do not name queries, levels
            that it has not, metrics or relevance for one label per example or
            for several.
    """
    named = splits.query_rows is not None or splits.gallery_rows is not None
    if recipe.evaluation.protocol == "official" and named:
        raise ValueError(
            "`evaluation.protocol` of a recipe must be left out, or be "
            "'all_vs_all', if the data set defines queries and gallery. "
            f"Received: 'official' and {recipe.source}."
        )
    missing = set(recipe.evaluation.levels or ()) - set(splits.levels)
    if missing:
        raise ValueError(
            "`evaluation.levels` of a recipe must be levels of the data set. "
            f"Received: {recipe.evaluation.levels} and {recipe.source}, which "
            f"has {', '.join(splits.levels) or 'none'}. The levels of a table "
            "are the columns listed in `data.levels`."
        )
    measured = ("validation", "test") if len(splits.validation) else ("test",)
    if recipe.refit and "validation" not in measured:
        raise ValueError(
            "`refit` of a recipe requires held-out classes to choose the "
            f"number of epochs. Received: refit=True, and {recipe.source} "
            "without held-out classes. Leave out `train_on: all` and "
            "`data.validation: 0`, or `refit`."
        )
    if not splits.test.has_label_sets:
        if "validation" in measured:
            _check_pairs(recipe, splits.validation, "validation")
        _check_pairs(
            recipe, splits.test, "test", splits.query_rows, splits.gallery_rows
        )
    owner = f"the recipe {recipe.name!r}"
    for split in measured:
        asked = _asked(recipe, splits, split)
        check_evaluation(owner, getattr(splits, split), **asked)


def _check_pairs(
    recipe: Recipe,
    images: data.Examples,
    role: str,
    queries: Rows | None = None,
    gallery: Rows | None = None,
) -> None:
    rows = np.arange(len(images))
    queries = rows if queries is None else queries
    gallery = rows if gallery is None else gallery
    classes, codes = np.unique(images.known_labels, return_inverse=True)
    found = np.bincount(codes[gallery], minlength=len(classes))[codes[queries]]
    itself = np.isin(queries, gallery)
    if not np.any(found > itself):
        raise ValueError(
            f"`data` of the recipe {recipe.name!r} must have at least two "
            f"images of one {role} class, a query and an image to find. "
            f"Received: {recipe.source}, where no two of the {len(rows)} "
            f"images of {role} classes have the same class. Put images of the "
            "same class into one folder, or give them the same label."
        )
