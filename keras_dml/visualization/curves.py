"""Curves over epochs, from the tables that runs write."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_dml.types import FloatArray
from keras_dml.visualization.canvas import chart, look, make_logarithmic

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

History = dict[str, FloatArray]


def read_history(path: str | os.PathLike[str]) -> History:
    """The columns of a `metrics.csv`; what was not measured is NaN.

    Raises:
        ValueError: If no epoch is in it.
    """
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(
            f"The table {os.fspath(path)!r} has no epoch: the run ended "
            "before its first one did."
        )
    return {
        name: np.array([_number(row[name]) for row in rows]) for name in rows[0]
    }


def recall_curves(
    histories: Mapping[str, History], metric: str = "val_recall@1"
) -> "DataFigure":
    """One metric over the epochs of several runs (D&C, Figure 1).

    The paper's figure compares the number of learners: give the runs names
    such as "K = 4".

    Args:
        histories: By name of the run, its columns: "epoch", from 0, and
            `metric`, of `read_history` or of `keras.callbacks.History`
            with its "epoch".
        metric: What to draw.

    Returns:
        A figure; its data are run, epoch from 1, and the metric.

    Raises:
        ValueError: If there are no runs, or one lacks the metric.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Figure 1.
    """
    for name, history in histories.items():
        if metric not in history:
            raise ValueError(
                f"`metric` of recall_curves must be measured in every run. "
                f"Received: metric={metric!r}, which {name!r} does not have; "
                f"it has {sorted(history)}."
            )
    label = metric.removeprefix("val_")
    where = ", validation classes" if metric.startswith("val_") else ""
    return _curves(
        {name: (x["epoch"], x[metric]) for name, x in histories.items()},
        "run",
        label,
        f"{label} while training{where}",
    )


def metric_curves(
    history: History,
    metrics: Sequence[str],
    ylabel: str,
    title: str,
    log: bool = False,
) -> "DataFigure":
    """Several metrics over the epochs of one run.

    Args:
        history: See `recall_curves`.
        metrics: Columns to draw.
        ylabel: What they are, with its unit.
        title: Title of the figure.
        log: Whether the values have a logarithmic axis; they must be
            positive.

    Returns:
        A figure; its data are metric, epoch from 1, and value.
    """
    return _curves(
        {
            name.removeprefix("val_"): (history["epoch"], history[name])
            for name in metrics
        },
        "metric",
        ylabel,
        title,
        log,
    )


def _curves(
    series: Mapping[str, tuple[FloatArray, FloatArray]],
    kind: str,
    ylabel: str,
    title: str,
    log: bool = False,
) -> "DataFigure":
    if not series:
        raise ValueError("Curves need a series to draw. Received: none.")
    figure, axes = chart(
        {
            kind: [name for name, (x, _) in series.items() for _ in x],
            "epoch": np.concatenate([x + 1 for x, _ in series.values()]).astype(
                int
            ),
            "value": np.concatenate([y for _, y in series.values()]),
        },
        "epoch",
        ylabel,
        title,
    )
    for number, (name, (epochs, values)) in enumerate(series.items()):
        style = look(number)
        axes.plot(
            epochs + 1,
            values,
            color=style.color,
            linestyle=style.line,
            marker=style.marker,
            markersize=5,
            markevery=max(1, len(epochs) // 20),
            label=name,
        )
    last = max(float(epochs.max()) for epochs, _ in series.values()) + 1
    axes.set_xlim(0.5, last + 0.5)
    axes.locator_params("x", integer=True, min_n_ticks=1)
    if log:
        make_logarithmic(axes)
    if len(series) > 1:
        figure.legend(loc="outside lower center", ncols=min(len(series), 3),
                      frameon=False, fontsize=9)  # fmt: skip
    return figure


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
