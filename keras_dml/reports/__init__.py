"""Reports on finished runs: figures, and self-contained HTML pages.

Open first: `page`, the report of a run, then `figures`, which reads a run and
chooses what it shows, and `html`, what every page has, with the page of the
results of a search for images.

Imports: `runs` and below.
"""

from keras_dml.reports.figures import (
    Run,
    RunFigure,
    comparisons,
    figures_of,
)
from keras_dml.reports.page import report

__all__ = [
    "Run",
    "RunFigure",
    "comparisons",
    "figures_of",
    "report",
]
