"""A finished run, as read for figures and reports."""

import os
from functools import cached_property
from pathlib import Path

import keras
import numpy as np

from keras_dml import runs
from keras_dml.data import DataSplits, Examples, ImageSet, View
from keras_dml.methods.declaration import Traits, find
from keras_dml.runs.folder import METRICS, load_outcome
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization import attention_maps, head_outputs, read_history
from keras_dml.visualization.curves import History
from keras_dml.visualization.outputs import output_shapes

MOST_TRAINING_IMAGES = 5000
"""The largest number of training images embedded for a figure."""


class Run:
    """A finished run, whose expensive attributes are computed on first use.

    Args:
        folder: The folder of the run.

    Attributes:
        outcome: Its outcome.
        recipe: Its recipe.
        results: Its metrics on the test classes, also for each query.

    Raises:
        RecipeError: If the folder is not that of a run.
        FileNotFoundError: If the run is not finished.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.outcome = load_outcome(folder)
        self.recipe = self.outcome.recipe
        self.results = self.outcome.after

    @cached_property
    def history(self) -> History:
        """Losses and validation metrics by epoch.

        Metrics are NaN in epochs after which they were not measured.
        """
        return read_history(self.folder / METRICS)

    @cached_property
    def splits(self) -> DataSplits:
        """The data of the recipe."""
        return self.recipe.data.load(self.recipe.seed, self.recipe.train_on)

    @property
    def images(self) -> Examples:
        """The images of the test classes."""
        return self.splits.test

    @cached_property
    def model(self) -> keras.Model:
        """The best model of the run."""
        keras.config.set_dtype_policy(self.recipe.precision)
        return runs.load_model(self.folder)

    @cached_property
    def view(self) -> View | None:
        """The view of the model; None if it does not take images."""
        return self.images.view_for(self.model)

    @cached_property
    def _outputs(self) -> dict[str, FloatArray]:
        return head_outputs(self.model, self.images)

    @property
    def embeddings(self) -> FloatArray:
        """Embeddings of the test images, (N, D)."""
        return self._outputs["embedding"]

    @property
    def parts(self) -> FloatArray | None:
        """Sub-embeddings of the test images, (N, K, d); None without any."""
        parts = self._outputs.get("parts")
        return parts if parts is not None and parts.shape[1] > 1 else None

    @cached_property
    def part_names(self) -> list[str]:
        """The method's names for its sub-embeddings."""
        count = 0 if self.parts is None else self.parts.shape[1]
        names = getattr(self.model.head, "tasks", ())
        if len(names) != count:
            names = range(1, count + 1)
        return [f"{self.part} {name}" for name in names]

    @property
    def traits(self) -> Traits:
        """The traits of the method."""
        return find(self.recipe.method.name)[1]

    @property
    def part(self) -> str:
        """The method's word for a sub-embedding."""
        return self.traits.part

    @property
    def has_attention(self) -> bool:
        """Whether the model's attention can be drawn."""
        has_pictures = isinstance(self.images, ImageSet)
        return has_pictures and "attention" in output_shapes(self.model)

    @property
    def explores_attention(self) -> bool:
        """Whether the report shows where the parts look at an image."""
        declared = "attention_overlays" in self.traits.figures
        return declared and self.has_attention

    @property
    def num_clusters(self) -> int:
        """Number of clusters of the training set; 0 if it was not divided."""
        divisions = self.outcome.divisions
        return len(divisions[0]["sizes"]) if divisions else 0

    @cached_property
    def attention(self) -> FloatArray:
        """Attention maps of the test images, (N, h, w, P)."""
        return attention_maps(self.model, self.images)

    @cached_property
    def training_images(self) -> Examples:
        """Images of training classes; a seeded sample if there are many."""
        train = self.splits.train
        if len(train) <= MOST_TRAINING_IMAGES:
            return train
        rng = np.random.default_rng(0)
        rows = rng.choice(len(train), MOST_TRAINING_IMAGES, replace=False)
        return train.select(np.sort(rows))

    def queries(self, count: int, seed: int = 0) -> Rows:
        """Returns random measured queries, ascending."""
        rows = np.unique(self.results.query_rows)
        rng = np.random.default_rng(seed)
        picked = rng.choice(rows, min(count, len(rows)), replace=False)
        return np.sort(picked)

    def examples(self, count: int) -> dict[str, list[tuple[int, float]]]:
        """Returns queries by their value of `metric`: rows with values.

        In each list, at most one query of a class; ties are broken by the
        lowest row.

        Returns:
            "best" and "worst", with the highest and the lowest values, and
            "typical", with those nearest to the median.
        """
        results, values = self.results, self.results.per_query[self.metric]
        found = {}
        for kind, badness in (
            ("best", -values),
            ("typical", np.abs(values - np.median(values))),
            ("worst", values),
        ):
            order = np.lexsort((results.query_rows, badness))
            first = np.unique(results.query_labels[order], return_index=True)[1]
            some = order[np.sort(first)[:count]]
            pairs = zip(results.query_rows[some], values[some], strict=True)
            found[kind] = [(int(row), float(value)) for row, value in pairs]
        return found

    @property
    def metric(self) -> str:
        """The metric that tells queries apart: the run's monitor, if it can."""
        measured = self.results.per_query
        monitor = self.recipe.evaluation.monitor
        return monitor if monitor in measured else next(iter(measured))
