"""The report of a study: one HTML page of the trials of `tune`."""

import os
from collections.abc import Iterable
from html import escape
from pathlib import Path

from keras_dml.recipes import dump
from keras_dml.reports.html import document, inline_svg
from keras_dml.reports.study_figures import (
    setting_figure,
    trial_curves,
    trial_history,
)
from keras_dml.runs.tuning import Tuned, importances, load_study
from keras_dml.utils.files import write_atomically


def study_report(
    folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Path:
    """Writes the report of a study: one HTML page that needs nothing else.

    It has the best settings, the value of every trial in order, the curves
    of the trials with where they were pruned, the value by each setting, how
    much each setting matters, and a table of all trials.

    Args:
        folder: The folder of the study, which may still be at work.
        output: The page; `report.html` in the folder by default.

    Returns:
        The path of the page.

    Raises:
        FileNotFoundError: If the folder has no study.
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
    text = (
        f"{len(states)} trials ({counts}), judged by "
        f"{tuned.recipe.evaluation.monitor} on classes held out of training. "
        "Test classes were not measured."
    )
    best = tuned.best
    if best is None:
        return text
    settings = ", ".join(f"{k} = {v}" for k, v in best.settings.items())
    return f"{text} Best: {best.value:.4f}, trial {best.number}: {settings}."


def _figures(tuned: Tuned) -> str:
    if not any(x.curve for x in tuned.trials):
        return ""
    monitor = tuned.recipe.evaluation.monitor
    drawn = {
        "history": (
            trial_history(tuned),
            f"{monitor} of each trial, in the order in which they began, and "
            "the best so far.",
        ),
        "curves": (
            trial_curves(tuned),
            f"{monitor} by epoch. Trials that end early were pruned.",
        ),
    }
    for number, key in enumerate(tuned.space.settings):
        drawn[f"setting-{number}"] = (
            setting_figure(tuned, key),
            f"{monitor} of trials by {key}.",
        )
    figures = [
        f'<figure class="chart"><div class="drawing">'
        f"{inline_svg(figure, name, caption)}</div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for name, (figure, caption) in drawn.items()
    ]
    return '<div class="figures">\n' + "\n".join(figures) + "\n</div>"


def _importance(tuned: Tuned) -> str:
    shares = importances(tuned.folder)
    if not shares:
        return (
            '<p class="note">Too few complete trials differ to say it: four '
            "are needed.</p>"
        )
    rows = [[name, f"{share:.0%}"] for name, share in shares.items()]
    note = (
        '<p class="note">Share of the variance between complete trials that '
        "a setting explains (fANOVA).</p>"
    )
    return note + _table([["setting", "importance"], *rows])


def _errors(tuned: Tuned) -> str:
    failed = [x for x in tuned.trials if x.error]
    if not failed:
        return ""
    return "<dl>" + "".join(
        f"<dt>Trial {x.number}</dt><dd>{escape(x.error)}</dd>" for x in failed
    ) + "</dl>"  # fmt: skip


def _table(table: list[list[str]]) -> str:
    def row(cells: Iterable[str], tag: str) -> str:
        inside = "".join(
            f"<{tag}>{escape(x)}</{tag.split()[0]}>" for x in cells
        )
        return f"<tr>{inside}</tr>"

    header, *rows = table
    body = "\n".join(row(cells, "td") for cells in rows)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
        f"<table><thead>{row(header, 'th scope=col')}</thead>"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
