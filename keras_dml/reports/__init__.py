"""Reports on finished runs: figures, and self-contained HTML pages."""

from keras_dml.reports.analysis import Run
from keras_dml.reports.figures import RunFigure, comparisons, figures_of
from keras_dml.reports.page import report
from keras_dml.reports.study import study_report

__all__ = [
    "Run",
    "RunFigure",
    "comparisons",
    "figures_of",
    "report",
    "study_report",
]
