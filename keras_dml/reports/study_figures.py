"""Figures of a study: its trials in order, their curves, their settings."""

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.pictures import short_name
from keras_dml.runs.tuning import Range, Trial, Tuned
from keras_dml.runs.tuning.study import shown
from keras_dml.visualization.canvas import (
    add_grid,
    add_legend,
    chart,
    draw_curve,
    look,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure

_STATES = ("complete", "pruned")


def _judged(tuned: Tuned) -> list[tuple[Trial, float]]:
    """Trials that have a value, by number, and their values."""
    ordered = sorted(tuned.trials, key=lambda x: x.number)
    return [(x, x.value) for x in ordered if x.value is not None]


def trial_history(tuned: Tuned) -> "DataFigure":
    """The value of each trial, and the best so far.

    Returns:
        A figure; its data are trial, state and value.
    """
    judged = _judged(tuned)
    monitor = tuned.recipe.evaluation.monitor
    figure, axes = chart(
        {
            "trial": [x.number for x, _ in judged],
            "state": [x.state for x, _ in judged],
            "value": [value for _, value in judged],
        },
        "trial", monitor, "Trials in order",
    )  # fmt: skip
    add_grid(axes)
    done = [(x.number, value) for x, value in judged if x.state == "complete"]
    if done:
        # On to the last trial, which may have been pruned.
        done.append((judged[-1][0].number, -np.inf))
        numbers, values = zip(*done, strict=True)
        best = np.maximum.accumulate(values)
        axes.step(numbers, best, where="post", color="#6B6B6B", label="best")
    for number, state in enumerate(_STATES):
        points = [(x.number, y) for x, y in judged if x.state == state]
        if points:
            style = look(number)
            axes.scatter(
                *zip(*points, strict=True),
                color=style.color,
                marker=style.marker,
                label=state,
            )
    axes.locator_params("x", integer=True)
    if judged:
        add_legend(figure)
    return figure


def trial_curves(tuned: Tuned) -> "DataFigure":
    """What is monitored by epoch, of every trial; the best one stands out.

    Returns:
        A figure; its data are trial, epoch from 1, and value.
    """
    trials = [x for x in tuned.trials if x.curve]
    points = [(x.number, *item) for x in trials for item in x.curve.items()]
    numbers, epochs, values = (
        map(list, zip(*points, strict=True)) if points else ([], [], [])
    )
    figure, axes = chart(
        {"trial": numbers, "epoch": epochs, "value": values},
        "epoch", tuned.recipe.evaluation.monitor, "Trials by epoch",
    )  # fmt: skip
    add_grid(axes)
    best = tuned.best
    for trial in trials:
        if trial != best:
            _draw_trial(axes, trial)
    if best is not None and best.curve:
        x, y = (
            np.array(list(z)) for z in zip(*best.curve.items(), strict=True)
        )
        draw_curve(axes, 0, x, y, f"best: trial {best.number}")
        add_legend(figure)
    axes.locator_params("x", integer=True, min_n_ticks=1)
    return figure


def _draw_trial(axes: "Axes", trial: Trial) -> None:
    style = look(_STATES.index(trial.state) if trial.state in _STATES else 2)
    *_, last = x = list(trial.curve)
    axes.plot(
        x,
        list(trial.curve.values()),
        color=style.color,
        linestyle=style.line,
        alpha=0.45,
        linewidth=1,
    )
    if trial.state != "complete":  # It may have had one epoch only.
        axes.plot(
            last, trial.curve[last], style.marker, color=style.color, ms=4
        )


def setting_figure(tuned: Tuned, key: str) -> "DataFigure":
    """The values of complete and pruned trials by one of the settings.

    Returns:
        A figure; its data are the setting, state and value.
    """
    judged = [(x, y) for x, y in _judged(tuned) if key in x.settings]
    searched = tuned.space.settings[key]
    figure, axes = chart(
        {
            key: [shown(x.settings[key]) for x, _ in judged],
            "state": [x.state for x, _ in judged],
            "value": [value for _, value in judged],
        },
        short_name(key, 40), tuned.recipe.evaluation.monitor,
        short_name(key, 40),
    )  # fmt: skip
    add_grid(axes)
    for number, state in enumerate(_STATES):
        own = [(x, y) for x, y in judged if x.state == state]
        if not own:
            continue
        style = look(number)
        places = [
            x.settings[key]
            if isinstance(searched, Range)
            else searched.values.index(x.settings[key])
            for x, _ in own
        ]
        axes.scatter(
            places,
            [value for _, value in own],
            color=style.color,
            marker=style.marker,
            label=state,
        )
    if isinstance(searched, Range):
        axes.set_xscale("log" if searched.log else "linear")
    else:
        names = [_label(x) for x in searched.values]
        is_wide = len(names) * max(map(_width, names)) > 60
        axes.set_xticks(
            range(len(names)),
            names,
            rotation=30 if is_wide else 0,
            ha="right" if is_wide else "center",
        )
        axes.set_xlim(-0.5, len(names) - 0.5)
    if judged:
        add_legend(figure)
    return figure


def _label(choice: Any) -> str:
    """A choice below an axis: the name of a section above its settings."""
    lines = shown(choice).replace(" (", "\n(", 1).split("\n")
    return "\n".join(short_name(x, 16) for x in lines)


def _width(label: str) -> int:
    return max(map(len, label.split("\n")))
