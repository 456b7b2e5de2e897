"""A finished run, and its figures."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_dml import runs, visualization
from keras_dml.data import DataSplits, Examples, ImageSet, View
from keras_dml.data.examples import any_labels_of
from keras_dml.evaluation import embed, kmeans
from keras_dml.methods.declaration import Traits, find
from keras_dml.runs.folder import METRICS, load_outcome
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.curves import History
from keras_dml.visualization.ensembles import mean_weights
from keras_dml.visualization.outputs import output_shapes

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

MOST_TRAINING_IMAGES = 5000
"""The largest number of training images embedded for a figure."""


class Run:
    """A finished run, whose expensive attributes are computed on first use.

    Args:
        folder: The folder of the run.
        trust: As for `runs.load_model`.

    Attributes:
        outcome: Its outcome.
        recipe: Its recipe.
        results: Its metrics on the test classes, also for each query.

    Raises:
        RecipeError: If the folder is not that of a run.
        FileNotFoundError: If the run is not finished.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, trust: bool = False
    ) -> None:
        self.folder = Path(folder)
        self.trust = trust
        self.outcome = load_outcome(folder, trust=trust)
        self.recipe = self.outcome.recipe
        self.results = self.outcome.after

    @cached_property
    def history(self) -> History:
        """Losses and validation metrics by epoch.

        Metrics are NaN in epochs after which they were not measured.
        """
        return visualization.read_history(self.folder / METRICS)

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
        return runs.load_model(self.folder, trust=self.trust)

    @cached_property
    def view(self) -> View | None:
        """The view of the model; None if it does not take images."""
        return self.images.view_for(self.model)

    @cached_property
    def _outputs(self) -> dict[str, FloatArray]:
        return visualization.head_outputs(self.model, self.images)

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
        return visualization.attention_maps(self.model, self.images)

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
        examples = {}
        for kind, badness in (
            ("best", -values),
            ("typical", np.abs(values - np.median(values))),
            ("worst", values),
        ):
            order = np.lexsort((results.query_rows, badness))
            first = np.unique(results.query_labels[order], return_index=True)[1]
            top = order[np.sort(first)[:count]]
            pairs = zip(results.query_rows[top], values[top], strict=True)
            examples[kind] = [(int(row), float(value)) for row, value in pairs]
        return examples

    @property
    def metric(self) -> str:
        """The metric to sort queries by: the run's monitor, if possible."""
        measured = self.results.per_query
        monitor = self.recipe.evaluation.monitor
        return monitor if monitor in measured else next(iter(measured))


@dataclass(frozen=True)
class RunFigure:
    """A figure of a run.

    Attributes:
        name: Name of its files.
        caption: A description with the images used and the source.
        wide: Whether it is wider than a chart.
        draw: A function that draws it.
    """

    name: str
    caption: str
    draw: Callable[[], "DataFigure"]
    wide: bool = False


def figures_of(run: Run, num_queries: int = 6) -> Iterator[RunFigure]:
    """Yields the figures that apply to a run, not drawn yet.

    Args:
        run: The run. Its method declares which figures it adds to those of
            every run; figures without data are left out.
        num_queries: Number of images in figures that show images.

    Raises:
        ValueError: If the method declares an unknown figure.
    """
    rows = run.queries(num_queries)
    yield from _curves(run)
    yield from _embedding_space(run)
    yield RunFigure(
        "retrieval",
        "Random test queries and their nearest images: ✓ and a solid frame for "
        "the right class, ✗ and a dashed frame for others.",
        lambda: visualization.retrieval_grid(
            run.images,
            run.embeddings,
            rows,
            run.view,
            gallery=run.splits.gallery_rows,
            groups=run.splits.cameras,
        ),
        wide=True,
    )
    for figure in run.traits.figures:
        if isinstance(figure, str):
            check_choice("Traits", "figures", figure, DECLARABLE)
            yield from DECLARABLE[figure](run, rows)
        else:
            name = figure.__name__
            caption = inspect.getdoc(figure) or name
            yield RunFigure(name, caption, partial(figure, run))


def _curves(run: Run) -> Iterator[RunFigure]:
    history = run.history
    measured = [name for name in history if name.startswith("val_")]
    terms = [
        name for name in ("loss", *run.model.objective.terms) if name in history
    ]
    if len(terms) == 2 and np.allclose(history["loss"], history[terms[1]]):
        terms = ["loss"]  # It is its only term.
    yield RunFigure(
        "validation",
        "Retrieval on validation classes while training.",
        lambda: visualization.metric_curves(
            history, measured, "share (0 to 1)", "Validation metrics"
        ),
    )
    yield RunFigure(
        "losses",
        "The loss and its unweighted terms: epoch averages, each on "
        "its own axis.",
        lambda: visualization.loss_curves(history, terms),
    )


def _embedding_space(run: Run) -> Iterator[RunFigure]:
    parts = "" if run.parts is None else f" Self: one image, two {run.part}s."
    yield RunFigure(
        "cosines",
        "Cosine similarities of pairs of test images of the same class "
        f"(positive) and of different classes (negative).{parts} As in "
        "Figure 5 of ABE.",
        lambda: visualization.cosine_histograms(
            run.embeddings if run.parts is None else run.parts,
            any_labels_of(run.images, "run.images.labels", "figures_of"),
        ),
    )
    yield RunFigure(
        "spectrum",
        "Singular values of the test embeddings: a flatter curve means that "
        "more directions are used. The spectral decay ρ is 0 if all are used "
        "equally. As in Figure 5 of DiVA.",
        lambda: visualization.singular_value_spectrum(
            {run.recipe.method.name: run.embeddings}
        ),
    )
    if run.images.has_label_sets:
        return
    yield RunFigure(
        "map",
        "Some test classes in the plane, by t-SNE on cosine similarities. "
        "Neighbors stay together; large distances mean nothing. The ten "
        "largest classes are marked and numbered.",
        lambda: visualization.embedding_map(
            run.embeddings, run.images.known_labels, run.images.names
        ),
    )


_SAMPLE_SIZE = f"at most {MOST_TRAINING_IMAGES:,} training images"


def _compositors(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if getattr(run.model.objective, "compositor", None) is not None:
        yield RunFigure(
            "compositors",
            "How strongly each composite weights each learner, averaged over "
            f"{_SAMPLE_SIZE}. DCML, Figure 4.",
            lambda: visualization.compositor_weights(
                mean_weights(run.model, run.training_images)
            ),
        )


def _clusters(run: Run, rows: Rows) -> Iterator[RunFigure]:
    def draw() -> "DataFigure":
        images = run.training_images
        points = embed(run.model, images)
        return visualization.cluster_distances(
            points, images.known_labels, kmeans(points, run.num_clusters)
        )

    if run.num_clusters:
        yield RunFigure(
            "clusters",
            f"Distances of pairs of different classes, for {_SAMPLE_SIZE} in "
            f"{run.num_clusters} K-means clusters. Divide and conquer, Figure "
            "8.",
            draw,
        )


def _overlays(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if run.has_attention:
        weights = "Each weight is the mean of a mask over its channels."
        if np.allclose(run.attention.sum(axis=(1, 2)), 1.0, atol=1e-3):
            weights = "The weights of a map sum to 1."
        yield RunFigure(
            "attention",
            f"Attention of each {run.part} on random test images. Every map "
            "has its own scale, from its smallest weight (dark) to its largest "
            "(bright), which are printed below; the contour is at the middle. "
            f"{weights} Attentive grouping, Figures 2 and 5.",
            lambda: visualization.attention_overlays(
                run.images, run.attention, rows, run.view, part=run.part
            ),
            wide=True,
        )


def _strongest(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if run.has_attention:
        yield RunFigure(
            "strongest",
            f"The test images with the largest weight for each {run.part}. "
            "Attentive grouping, Figures 3 and 4.",
            lambda: visualization.strongest_attention(
                run.images, run.attention, run.view, part=run.part
            ),
            wide=True,
        )


def _masks(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if run.has_attention:
        yield RunFigure(
            "masks",
            "Masks of the first three learners for the three channels in which "
            "they differ most, and the mean of all, each on its own scale. "
            "ABE, Figure 6.",
            lambda: visualization.attention_masks(run.model, run.images, rows),
            wide=True,
        )


DECLARABLE: dict[str, Callable[[Run, Rows], Iterator[RunFigure]]] = {
    "attention_masks": _masks,
    "attention_overlays": _overlays,
    "cluster_distances": _clusters,
    "compositor_weights": _compositors,
    "strongest_attention": _strongest,
}
"""Figures that a method may declare, by the function that draws them.

Each is yielded if the run has the data for it.
"""


def comparisons(
    runs: Sequence[Run], metric: str = "val_recall@1"
) -> list[RunFigure]:
    """Draws a metric over the epochs, and the spectra, of several runs.

    Args:
        runs: The runs. They are named after their recipes, or after their
            folders if several recipes have the same name.
        metric: Column of `metrics.csv`.
    """
    names = [run.recipe.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    by_name = dict(zip(names, runs, strict=True))
    return [
        RunFigure(
            "recall_curves",
            f"{metric} of {len(runs)} runs. Divide and conquer, Figure 1.",
            lambda: visualization.recall_curves(
                {name: run.history for name, run in by_name.items()}, metric
            ),
        ),
        RunFigure(
            "spectra",
            "Singular values of the test embeddings of each run. DiVA, "
            "Figure 5.",
            lambda: visualization.singular_value_spectrum(
                {name: run.embeddings for name, run in by_name.items()}
            ),
        ),
    ]
