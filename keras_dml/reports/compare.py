"""Figures that set several runs against each other."""

from collections.abc import Sequence

from keras_dml import visualization
from keras_dml.reports.analysis import Run
from keras_dml.reports.figures import RunFigure


def comparisons(
    runs: Sequence[Run], metric: str = "val_recall@1"
) -> list[RunFigure]:
    """A metric over the epochs, and the spectra, of several runs.

    Args:
        runs: The runs; they go by the names of their recipes, and where
            these are the same by their folders.
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
