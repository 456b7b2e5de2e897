"""The report of a study: one HTML page of the trials of `tune`."""

import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from keras_dml.recipes import dump
from keras_dml.reports.html import document, inline_svg
from keras_dml.runs.tuning import Tuned, importances, load_study
from keras_dml.runs.tuning.study import BEST, open_study, shown
from keras_dml.utils.files import write_atomically


def study_report(
    folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Path:
    """Writes the report of a study as one self-contained HTML page.

    It contains the best trial, the values of all trials in order, their
    curves and where they were pruned, the values by setting, the importance of
    each setting, and a table of all trials.

    Args:
        folder: The folder of the study, which may still be running.
        output: The page; `report.html` in the folder by default.

    Returns:
        The path of the page.

    Raises:
        FileNotFoundError: If the folder is not that of a study.
        ImportError: If optuna is not installed.
    """
    tuned = load_study(folder)
    path = Path(output) if output else tuned.folder / "report.html"
    title = f"{tuned.recipe.name} – study"
    write_atomically(path, document(title, _body(title, tuned)))
    return path


def _body(title: str, tuned: Tuned) -> str:
    sections = [
        f"<header>\n<h1>{escape(title)}</h1>\n<p>{escape(_about(tuned))}</p>"
        "\n</header>\n<main>",
        _section("Best trial", _best(tuned)),
        _section("Figures", _figures(tuned)),
        _section("Importance of the settings", _importance(tuned)),
        _section("Trials", _table(tuned.table())),
        _section("Errors", _errors(tuned)),
        _section(
            "Recipe",
            '<pre tabindex="0" role="region" aria-label="The recipe">'
            f"{escape(dump(tuned.recipe))}</pre>",
        ),
        "</main>",
    ]
    return "\n".join(x for x in sections if x)


def _section(title: str, content: str) -> str:
    if not content:
        return ""
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>"


def _about(tuned: Tuned) -> str:
    states = [x.state for x in tuned.trials]
    counts = ", ".join(
        f"{states.count(x)} {x}"
        for x in ("complete", "pruned", "failed", "running")
        if x in states
    )
    return (
        f"{len(states)} trials ({counts}), judged by "
        f"{tuned.recipe.evaluation.monitor} on classes held out of training. "
        "Test classes were not measured."
    )


def _best(tuned: Tuned) -> str:
    best = tuned.best
    if best is None:
        return '<p class="note">No trial is complete.</p>'
    monitor = tuned.recipe.evaluation.monitor
    command = f"keras-dml train {shlex.quote(str(tuned.folder / BEST))}"
    rows = [[key, shown(value)] for key, value in best.settings.items()]
    return (
        f"<p>Trial {best.number}: {escape(monitor)} {best.value:.4f}. This "
        'trains it:</p>\n<pre tabindex="0" role="region" '
        f'aria-label="The command">{escape(command)}</pre>\n'
        + _table([["setting", "value"], *rows])
    )


def _figures(tuned: Tuned) -> str:
    if not any(x.curve for x in tuned.trials):
        return ""
    import optuna

    plots: Any = optuna.visualization.matplotlib
    study, monitor = open_study(tuned.folder), tuned.recipe.evaluation.monitor
    named = {"target_name": monitor}
    drawn: dict[str, Callable[[], Any]] = {
        f"{monitor} of complete trials, in the order in which they began, and "
        "the best so far.": partial(
            plots.plot_optimization_history, study, **named
        ),
        f"{monitor} by epoch.": partial(plots.plot_intermediate_values, study),
        **{
            f"{monitor} of complete trials by {key}.": partial(
                plots.plot_slice, study, [key], **named
            )
            for key in tuned.space.distributions
        },
    }
    figures = [
        f'<figure class="chart"><div class="drawing">'
        f"{_svg(draw, f'figure-{number}', caption)}</div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for number, (caption, draw) in enumerate(drawn.items())
    ]
    return '<div class="figures">\n' + "\n".join(figures) + "\n</div>"


def _svg(draw: Callable[[], Any], name: str, caption: str) -> str:
    """A figure of Optuna, whose text has the color of the page's."""
    import matplotlib
    from matplotlib import pyplot

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They are experimental.
        figure = draw().figure
        svg = inline_svg(figure, name, caption)
        pyplot.close(figure)
    return svg.replace("#555555", "currentColor")


def _importance(tuned: Tuned) -> str:
    shares = importances(tuned.folder)
    if not shares:
        return (
            '<p class="note">At least four complete trials with different '
            "values are needed.</p>"
        )
    rows = [[name, f"{share:.0%}"] for name, share in shares.items()]
    note = (
        '<p class="note">Fraction of the variance between complete trials '
        "that a setting explains (fANOVA).</p>"
    )
    return note + _table([["setting", "importance"], *rows])


def _errors(tuned: Tuned) -> str:
    """Each error once, with the trials that it ended."""
    numbers: dict[str, list[str]] = {}
    for x in tuned.trials:
        if x.error:
            numbers.setdefault(x.error, []).append(str(x.number))
    if not numbers:
        return ""
    return "<dl>" + "".join(
        f"<dt>{'Trials' if len(own) > 1 else 'Trial'} {', '.join(own)}</dt>"
        f"<dd>{escape(error)}</dd>"
        for error, own in numbers.items()
    ) + "</dl>"  # fmt: skip


def _table(table: list[list[str]]) -> str:
    """A table; columns of numbers are on the right, others on the left."""
    header, *rows = table
    kinds = [
        "" if all(map(_is_number, column)) else ' class="text"'
        for column in zip(*rows, strict=True)
    ]

    def row(cells: Iterable[str], tag: str, more: str = "") -> str:
        inside = "".join(
            f"<{tag}{more}{kind}>{_breakable(x)}</{tag}>"
            for x, kind in zip(cells, kinds, strict=True)
        )
        return f"<tr>{inside}</tr>"

    body = "\n".join(row(cells, "td") for cells in rows)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
        '<table class="narrow"><thead>'
        f"{row(header, 'th', ' scope=col')}</thead>"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _is_number(text: str) -> bool:
    return text == "–" or re.fullmatch(r"[-+.\de]+%?", text) is not None


def _breakable(text: str) -> str:
    """Escaped text, whose lines may end within a setting's name."""
    return re.sub(r"(?<=\w)([._])(?=[a-z])", r"\1<wbr>", escape(text))
