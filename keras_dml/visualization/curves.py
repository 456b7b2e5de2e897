"""Curves over epochs, from the metrics that runs record."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_dml.data.pictures import short_name
from keras_dml.utils.types import FloatArray
from keras_dml.visualization.canvas import (
    HEIGHT,
    add_grid,
    add_legend,
    chart,
    draw_curve,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure

History: TypeAlias = dict[str, FloatArray]
Series: TypeAlias = Mapping[str, tuple[FloatArray, FloatArray]]
"""Epochs, from 0, and values, by name."""


def read_history(path: str | os.PathLike[str]) -> History:
    """Reads the columns of a `metrics.csv`; missing values become NaN.

    Raises:
        ValueError: If the file contains no epoch.
    """
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(
            f"The table {os.fspath(path)!r} must contain at least one epoch. "
            "Received: none, because the run ended before its first epoch did."
        )
    return {
        name: np.array([_number(row[name]) for row in rows]) for name in rows[0]
    }


def recall_curves(
    histories: Mapping[str, History], metric: str = "val_recall@1"
) -> "DataFigure":
    """Plots one metric over the epochs of several runs (D&C, Figure 1).

    The paper's figure compares numbers of learners; use names such as "K = 4"
    for the runs.

    Args:
        histories: The columns of each run by its name: "epoch", from 0, and
            `metric`, as returned by `read_history`, or from
            `keras.callbacks.History` with its "epoch" added.
        metric: The metric to plot.

    Returns:
        A figure. Its data columns are run, epoch (from 1) and the metric.

    Raises:
        ValueError: If there are no runs, or one lacks the metric.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Figure 1.
    """
    for name, history in histories.items():
        if metric not in history:
            raise ValueError(
                "`metric` of recall_curves must be measured in every run. "
                f"Received: metric={metric!r}, which {name!r} does not have. "
                f"Use one of {sorted(history)}."
            )
    label = metric.removeprefix("val_")
    where = ", validation classes" if metric.startswith("val_") else ""
    series = {
        name: _drop_missing(history["epoch"], history[metric])
        for name, history in histories.items()
    }
    return _curves(series, "run", label, f"{label} while training{where}")


def metric_curves(
    history: History, metrics: Sequence[str], ylabel: str, title: str
) -> "DataFigure":
    """Plots several metrics over the epochs of one run.

    Args:
        history: See `recall_curves`.
        metrics: Columns to plot.
        ylabel: Label of the vertical axis, with its unit.
        title: Title of the figure.

    Returns:
        A figure. Its data columns are metric, epoch (from 1) and value.
    """
    series = _series(history, metrics)
    measured = {name: _drop_missing(*curve) for name, curve in series.items()}
    return _curves(measured, "metric", ylabel, title)


def loss_curves(history: History, losses: Sequence[str]) -> "DataFigure":
    """Plots losses over the epochs of one run, each on its own axis.

    The terms of a loss differ in size and sign; in a single chart, the small
    ones would all appear as zero.

    Args:
        history: See `recall_curves`.
        losses: Columns to plot.

    Returns:
        A figure. Its data columns are loss, epoch (from 1) and value.

    Raises:
        ValueError: If there are no losses.
    """
    series = _series(history, losses)
    table = _table(series, "loss")
    columns = min(2, len(series))
    rows = -(-len(series) // columns)
    figure = new_figure(table, height=max(HEIGHT, 1.3 * rows + 0.5))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(grid, series, strict=False):
        epochs, values = series[name]
        draw_curve(axes, 0, epochs + 1, values, short_name(name, 40))
        add_grid(axes)
        # A long name reaches over the numbers of the axis, not off the page.
        axes.set_title(short_name(name, 30), fontsize=9, loc="right")
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.locator_params("y", nbins=8 // columns)
        _number_epochs(axes, [epochs], 10 // columns)
    for axes in grid[len(series) :]:
        axes.axis("off")
    figure.suptitle("Training losses", fontsize=11)
    figure.supxlabel("epoch", fontsize=10)
    figure.supylabel("mean of an epoch", fontsize=10)
    return figure


def _series(history: History, names: Sequence[str]) -> Series:
    return {
        name.removeprefix("val_"): (history["epoch"], history[name])
        for name in names
    }


def _drop_missing(
    epochs: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Leaves out epochs without a value: a curve goes on to the next one."""
    is_measured = ~np.isnan(values)
    return epochs[is_measured], values[is_measured]


def _table(series: Series, kind: str) -> dict[str, Any]:
    if not series:
        raise ValueError("Curves need a series to draw. Received: none.")
    epochs = np.concatenate([x + 1 for x, _ in series.values()])
    return {
        kind: [name for name, (x, _) in series.items() for _ in x],
        "epoch": epochs.astype(int),
        "value": np.concatenate([y for _, y in series.values()]),
    }


def _curves(series: Series, kind: str, ylabel: str, title: str) -> "DataFigure":
    figure, axes = chart(_table(series, kind), "epoch", ylabel, title)
    add_grid(axes)
    for number, (name, (epochs, values)) in enumerate(series.items()):
        draw_curve(axes, number, epochs + 1, values, short_name(name, 40))
    _number_epochs(axes, [epochs for epochs, _ in series.values()])
    if len(series) > 1:
        add_legend(figure)
    return figure


def _number_epochs(
    axes: "Axes", epochs: Sequence[FloatArray], max_ticks: int = 10
) -> None:
    last = max(float(x.max()) for x in epochs) + 1
    axes.set_xlim(0.5, last + 0.5)
    axes.locator_params("x", integer=True, min_n_ticks=1, nbins=max_ticks)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
