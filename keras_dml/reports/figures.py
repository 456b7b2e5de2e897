"""Figures of a run."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from keras_dml import visualization
from keras_dml.data.examples import any_labels_of
from keras_dml.evaluation import embed, kmeans
from keras_dml.reports.analysis import MOST_TRAINING_IMAGES, Run
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Rows
from keras_dml.visualization.ensembles import mean_weights

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


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
    yield _retrieval(run, rows)
    yield from _of_method(run, rows)


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
        f"(positive) and of different classes (negative).{parts} ABE, Figure "
        "5.",
        lambda: visualization.cosine_histograms(
            run.embeddings if run.parts is None else run.parts,
            any_labels_of(run.images, "run.images.labels", "figures_of"),
        ),
    )
    yield RunFigure(
        "spectrum",
        "Singular values of the test embeddings: a flatter curve means that "
        "more directions are used. The spectral decay ρ is 0 if all are used "
        "equally. DiVA, Figure 5.",
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


def _retrieval(run: Run, rows: Rows) -> RunFigure:
    return RunFigure(
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


def _of_method(run: Run, rows: Rows) -> Iterator[RunFigure]:
    for figure in run.traits.figures:
        if isinstance(figure, str):
            check_choice("Traits", "figures", figure, DECLARABLE)
            yield from DECLARABLE[figure](run, rows)
        else:
            name = figure.__name__
            caption = inspect.getdoc(figure) or name
            yield RunFigure(name, caption, partial(figure, run))


_SOME = f"at most {MOST_TRAINING_IMAGES:,} training images"


def _compositors(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if getattr(run.model.objective, "compositor", None) is not None:
        yield RunFigure(
            "compositors",
            "How strongly each composite weights each learner, averaged over "
            f"{_SOME}. DCML, Figure 4.",
            lambda: visualization.compositor_weights(
                mean_weights(run.model, run.training_images)
            ),
        )


def _clusters(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if run.num_clusters:
        yield RunFigure(
            "clusters",
            f"Distances of pairs of different classes, for {_SOME} in "
            f"{run.num_clusters} K-means clusters. Divide and conquer, Figure "
            "8.",
            lambda: _cluster_distances(run),
        )


def _cluster_distances(run: Run) -> "DataFigure":
    images = run.training_images
    points = embed(run.model, images)
    return visualization.cluster_distances(
        points, images.known_labels, kmeans(points, run.num_clusters)
    )


def _overlays(run: Run, rows: Rows) -> Iterator[RunFigure]:
    if run.has_attention:
        yield RunFigure(
            "attention",
            f"Attention of each {run.part} on random test images. Every map "
            "has its own scale, from its smallest weight (dark) to its largest "
            "(bright), which are printed below; the contour is at the middle. "
            f"{_weights(run)} Attentive grouping, Figures 2 and 5.",
            lambda: visualization.attention_overlays(
                run.images, run.attention, rows, run.view, part=run.part
            ),
            wide=True,
        )


def _weights(run: Run) -> str:
    if np.allclose(run.attention.sum(axis=(1, 2)), 1.0, atol=1e-3):
        return "The weights of a map sum to 1."
    return "Each weight is the mean of a mask over its channels."


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
"""What a method may declare, by the function of visualization that draws it.

Each yields its figure if the run has what it shows.
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
    named = dict(zip(names, runs, strict=True))
    return [
        RunFigure(
            "recall_curves",
            f"{metric} of {len(runs)} runs. Divide and conquer, Figure 1.",
            lambda: visualization.recall_curves(
                {name: run.history for name, run in named.items()}, metric
            ),
        ),
        RunFigure(
            "spectra",
            "Singular values of the test embeddings of each run. DiVA, "
            "Figure 5.",
            lambda: visualization.singular_value_spectrum(
                {name: run.embeddings for name, run in named.items()}
            ),
        ),
    ]
