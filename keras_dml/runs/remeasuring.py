"""Repeated measurements of finished runs, and paired comparisons."""

import os
from dataclasses import dataclass

import keras

from keras_dml.data import Examples, ImageSet
from keras_dml.data.contents import digest
from keras_dml.evaluation import Results, compare
from keras_dml.recipes import Recipe, building
from keras_dml.runs.folder import load_model, load_recipe
from keras_dml.runs.measuring import measure
from keras_dml.runs.outcome import Table


@dataclass(frozen=True)
class Measurement:
    """The results of a run's model on some images.

    Attributes:
        recipe: The recipe of the run.
        images: The images.
        results: Metrics, also for each query.
    """

    recipe: Recipe
    images: Examples
    results: Results

    def __str__(self) -> str:
        return (
            f"{self.recipe.source} (seed {self.recipe.seed}: {self.images!r})"
        )


def remeasure(
    folder: str | os.PathLike[str], split: str = "test", which: str = "best"
) -> Measurement:
    """Measures the model of a run again, with identical results.

    Args:
        folder: The folder of the run.
        split: "test", "validation" or "train"; or one of several test sets by
            its name, such as "large" of VehicleID.
        which: The "best" or the "last" model.

    Raises:
        RecipeError: If the folder holds no run.
        FileNotFoundError: If the run saved no model.
        ValueError: If the data set has no such split.
    """
    recipe = load_recipe(folder)
    keras.config.set_dtype_policy(recipe.precision)
    splits = building.splits(recipe)
    images = splits.part(split)
    model = load_model(folder, which)
    results = measure(recipe, model, splits, split)
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
        self.comparison = compare(self.first, self.second, units=units)
        self._images = first.images

    def counts(self, metric: str) -> tuple[int, int, int]:
        """Returns the numbers of better, worse and equal queries."""
        better = len(self.comparison.better(metric))
        worse = len(self.comparison.worse(metric))
        return better, worse, self.first.num_queries - better - worse

    def table(self, metric: str, better: bool, top: int) -> Table:
        """Returns a header and the rows of the queries that changed most."""
        found = self.comparison
        changed = found.better(metric) if better else found.worse(metric)
        rows = []
        for row in changed[:top].tolist():
            position = int((self.first.query_rows == row).argmax())
            values = self._values(metric, position)
            rows.append([*self._named(row), *(f"{x:.4f}" for x in values)])
        return [["row", "image", "class", "first", "second"], *rows]

    def every_query(self) -> Table:
        """Returns a header and the rows of all queries, for all metrics."""
        columns = [
            f"{x} {w}" for x in self.comparison for w in ("first", "second")
        ]
        rows = [
            [
                *self._named(row),
                *(
                    repr(value)
                    for metric in self.comparison
                    for value in self._values(metric, position)
                ),
            ]
            for position, row in enumerate(self.first.query_rows.tolist())
        ]
        return [["row", "image", "class", *columns], *rows]

    def _named(self, row: int) -> list[str]:
        images = self._images
        image = images.ids[row] if images.ids else ""
        if isinstance(images, ImageSet):
            image = images.paths[row] if images.paths else image
        else:
            image = images.called(row)
        return [str(row), image, images.class_called(row)]

    def _values(self, metric: str, position: int) -> list[float]:
        both = (self.first, self.second)
        return [float(x.per_query[metric][position]) for x in both]
