"""Measuring models with the metrics of recipes, and comparing runs."""

import os
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_dml import data, evaluation
from keras_dml.data.hashing import digest
from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.evaluation._evaluate import check_evaluation
from keras_dml.recipes import Recipe
from keras_dml.recipes.schema import Evaluation
from keras_dml.runs.folder import load_model, load_recipe
from keras_dml.runs.outcome import Table
from keras_dml.utils.types import Rows


def measure(
    recipe: Recipe,
    model: keras.Model,
    splits: data.DataSplits,
    split: str = "test",
    engine: Engine = KERAS,
) -> evaluation.Results:
    """Measures a model on one of the splits with the metrics of a recipe.

    Unless the recipe has a protocol, test images are measured as the data set
    defines it: which images are queries, and which form the gallery. Images of
    a query's class from its own camera do not count. Test images are measured
    at the levels of a hierarchy, others at the level that the model was trained
    with.
    """
    arguments = _arguments(recipe.evaluation, splits, split)
    return evaluation.evaluate(
        model, splits.part(split), **arguments, engine=engine
    )


def _arguments(
    section: Evaluation, splits: data.DataSplits, split: str
) -> dict[str, Any]:
    """Arguments of `evaluate` for one of the splits."""
    arguments = section.model_dump(exclude={"monitor", "every"})
    levels = arguments.pop("levels")
    if split == "test":
        if arguments["protocol"] is None:
            arguments["protocol"] = evaluation.Protocol(
                splits.query_rows, splits.gallery_rows
            )
        arguments["exclude"] = splits.cameras
        if splits.levels:
            arguments |= {"labels": splits.levels, "levels": levels}
    return arguments


def check_splits(recipe: Recipe, splits: data.DataSplits) -> None:
    """Checks that queries have something to find, and the recipe fits the data.

    Raises:
        ValueError: If no image of the validation or of the test classes has
            another one of its class to be found; if the protocol, the levels,
            metrics or the relevance are for other data.
    """
    rows = splits.query_rows, splits.gallery_rows
    names_queries = any(x is not None for x in rows)
    if recipe.evaluation.protocol == "official" and names_queries:
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
    roles = ("validation", "test") if len(splits.validation) else ("test",)
    if recipe.refit and "validation" not in roles:
        raise ValueError(
            "`refit` of a recipe requires held-out classes to choose the "
            f"number of epochs. Received: refit=True, and {recipe.source} "
            "without held-out classes. Leave out `train_on: all` and "
            "`data.validation: 0`, or `refit`."
        )
    if not splits.test.has_label_sets:
        if "validation" in roles:
            _check_pairs(recipe, splits.validation, "validation")
        _check_pairs(
            recipe, splits.test, "test", splits.query_rows, splits.gallery_rows
        )
    if recipe.relation_rule is not None and not splits.train.has_label_sets:
        raise ValueError(
            "`relation_rule` of a recipe requires examples with several "
            f"labels. Received: {recipe.relation_rule!r} and {splits.train!r}. "
            "Leave it out."
        )
    owner = f"the recipe {recipe.name!r}"
    for split in roles:
        arguments = _arguments(recipe.evaluation, splits, split)
        check_evaluation(owner, getattr(splits, split), **arguments)


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
    hits = np.bincount(codes[gallery], minlength=len(classes))[codes[queries]]
    itself = np.isin(queries, gallery)
    if not np.any(hits > itself):
        raise ValueError(
            f"`data` of the recipe {recipe.name!r} must have at least two "
            f"images of one {role} class, a query and an image to find. "
            f"Received: {recipe.source}, where no two of the {len(rows)} "
            f"images of {role} classes have the same class. Put images of the "
            "same class into one folder, or give them the same label."
        )


@dataclass(frozen=True)
class Measurement:
    """The results of a run's model on some images.

    Attributes:
        recipe: The recipe of the run.
        images: The images.
        results: Metrics, also for each query.
    """

    recipe: Recipe
    images: data.Examples
    results: evaluation.Results

    def __str__(self) -> str:
        return (
            f"{self.recipe.source} (seed {self.recipe.seed}: {self.images!r})"
        )


def remeasure(
    folder: str | os.PathLike[str],
    split: str = "test",
    which: str = "best",
    engine: Engine = KERAS,
    *,
    trust: bool = False,
) -> Measurement:
    """Measures the model of a run again, with identical results.

    Args:
        folder: The folder of the run.
        split: "test", "validation" or "train"; or one of several test sets by
            its name, such as "large" of VehicleID.
        which: The "best" or the "last" model.
        engine: The engine of embeddings; see `evaluation.embed`. Results of
            "openvino" are not identical, as embeddings differ by up to 1e-5.
        trust: As for `load_model`.

    Raises:
        ImportError: If the extra "openvino" is required but not installed.
        RecipeError: If the folder holds no run.
        FileNotFoundError: If the run saved no model.
        ValueError: If the data set has no such split.
    """
    check_engine("remeasure", engine)
    recipe = load_recipe(folder, trust=trust)
    keras.config.set_dtype_policy(recipe.precision)
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    images = splits.part(split)
    model = load_model(folder, which, trust=trust)
    results = measure(recipe, model, splits, split, engine)
    return Measurement(recipe, images, results)


class Changes:
    """The queries that a second model answers better or worse than a first.

    Args:
        first: The measurement of the first model.
        second: The measurement of the second model.
        units: As for `keras_dml.evaluation.compare`.

    Attributes:
        comparison: Differences of the metrics.

    Raises:
        ValueError: If the two were not measured on the same queries.
    """

    def __init__(
        self, first: Measurement, second: Measurement, units: str = "queries"
    ) -> None:
        if digest(first.images) != digest(second.images):
            raise ValueError(
                "Two runs must be compared on the same images, with the same "
                f"order and classes. Received: {first} and {second}. Train "
                "both recipes on the same `data`; validation and training "
                "images also depend on `seed`."
            )
        self.first = first.results
        self.second = second.results
        self.comparison = evaluation.compare(
            self.first, self.second, units=units
        )
        self._images = first.images

    def counts(self, metric: str) -> tuple[int, int, int]:
        """Returns the numbers of better, worse and equal queries."""
        better = len(self.comparison.better(metric))
        worse = len(self.comparison.worse(metric))
        return better, worse, self.first.num_queries - better - worse

    def table(self, metric: str, better: bool, top: int) -> Table:
        """Returns a header and the rows of the queries that changed most."""
        comparison = self.comparison
        changed = (comparison.better if better else comparison.worse)(metric)
        rows = []
        for row in changed[:top].tolist():
            position = int((self.first.query_rows == row).argmax())
            values = self._values(metric, position)
            rows.append([*self._names(row), *(f"{x:.4f}" for x in values)])
        return [["row", "image", "class", "first", "second"], *rows]

    def every_query(self) -> Table:
        """Returns a header and the rows of all queries, for all metrics."""
        columns = [
            f"{x} {w}" for x in self.comparison for w in ("first", "second")
        ]
        rows = [
            [
                *self._names(row),
                *(
                    repr(value)
                    for metric in self.comparison
                    for value in self._values(metric, position)
                ),
            ]
            for position, row in enumerate(self.first.query_rows.tolist())
        ]
        return [["row", "image", "class", *columns], *rows]

    def _names(self, row: int) -> list[str]:
        images = self._images
        if isinstance(images, data.ImageSet):
            names = images.paths or images.ids
            image = names[row] if names else ""
        else:
            image = images.called(row)
        return [str(row), image, images.class_called(row)]

    def _values(self, metric: str, position: int) -> list[float]:
        both = (self.first, self.second)
        return [float(x.per_query[metric][position]) for x in both]
