"""The report of a run: one HTML page that needs nothing else."""

import csv
import io
import json
import os
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from keras_dml.evaluation import bootstrap
from keras_dml.recipes import dump
from keras_dml.reports.analysis import Run
from keras_dml.reports.explorer import explorer
from keras_dml.reports.figures import RunFigure, figures_of
from keras_dml.reports.html import asset, document
from keras_dml.reports.pictures import data_uri
from keras_dml.reports.svg import inline_svg
from keras_dml.runs.folder import load_result
from keras_dml.runs.outcome import definition, divisions_table

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

CURVES = ("validation", "losses")


def report(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    num_queries: int = 60,
) -> Path:
    """Writes the report of a finished run: one HTML page.

    It opens from disk, without a network. It has the recipe, the metrics
    with confidence intervals, curves, the figures of the method, the worst
    queries, and an explorer of neighbors under the full embedding and
    under each sub-embedding.

    Args:
        folder: The folder of the run.
        output: The page; `report.html` in the run's folder by default.
        num_queries: Test images that can be explored, chosen at random with a
            fixed seed; fewer where their thumbnails would take more than
            4 MB.

    Returns:
        The path of the page.

    Raises:
        RecipeError: If the folder holds no run.
        FileNotFoundError: If the run is not finished.
    """
    run = Run(folder)
    path = Path(output) if output else run.folder / "report.html"
    text = render(run, num_queries)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def render(run: Run, num_queries: int = 60) -> str:
    """The text of the page."""
    shown = explorer(run, num_queries)
    figures = {figure.name: figure for figure in figures_of(run)}
    rest = [f for name, f in figures.items() if name not in CURVES]
    result = load_result(run.folder)
    body = Template(asset("report.html")).substitute(
        title=escape(run.recipe.name),
        about=_about(run, result),
        metrics=_metrics(run, result),
        definitions=_definitions(run),
        curves=_figures(figures[name] for name in CURVES),
        divisions=_divisions(result),
        figures=_figures(rest),
        explored=_explored(shown),
        attention=_attention(run),
        worst=_worst(shown),
        recipe=escape(dump(run.recipe)),
        environment=_environment(result),
        data=_json(shown),
    )
    return document(f"{run.recipe.name} – report", body, asset("explorer.js"))


def _json(content: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _about(run: Run, result: dict[str, Any]) -> str:
    images = result["images"]
    parts = [
        f"{run.recipe.method.name} on {run.recipe.data.name}, "
        f"backbone {run.recipe.backbone.name}: trained on "
        f"{images['train']:,} images, measured on {images['test']:,} images "
        f"of {run.images.num_classes:,} test classes.",
    ]
    if result["best_epoch"] is None:
        parts.append("No epoch was completed; this is the last model.")
    else:
        parts.append(
            f"Best epoch: {result['best_epoch']} of {run.recipe.epochs}, by "
            f"{run.recipe.evaluation.monitor} = {result['monitored']:.4f} on "
            f"{images['validation']:,} images of validation classes."
        )
    parts.append(f"Training took {result['seconds']['training']:,.0f} s.")
    if result["interrupted"]:
        parts.append("The training was interrupted.")
    return " ".join(map(escape, parts))


def _metrics(run: Run, result: dict[str, Any]) -> str:
    intervals = bootstrap(run.results) if run.results.per_query else {}
    rows = []
    for name, value in run.results.items():
        interval = intervals.get(name)
        ends = f"{interval.low:.4f}–{interval.high:.4f}" if interval else "–"
        before = result["before"].get(name)
        cells = [
            "–" if before is None else f"{before:.4f}",
            f"<strong>{value:.4f}</strong>",
            ends,
        ]
        rows.append(_row(name, cells))
    return "\n".join(rows)


def _row(name: str, cells: Iterable[str]) -> str:
    """A row of a table, from a name and HTML."""
    head = f'<tr><th scope="row">{escape(name)}</th>'
    return head + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _divisions(result: dict[str, Any]) -> str:
    if not result["divisions"]:
        return ""
    header, *rows = divisions_table(result["divisions"])
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = (_row(first, map(escape, cells)) for first, *cells in rows)
    return Template(asset("divisions.html")).substitute(
        head=head, rows="\n".join(lines)
    )


def _definitions(run: Run) -> str:
    return _pairs(
        {name: definition(name).rpartition(" (")[0] for name in run.results}
    )


def _pairs(texts: dict[str, str]) -> str:
    """The lines of a list of terms and what is said of each."""
    return "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in texts.items()
    )


def _figures(figures: Iterable[RunFigure]) -> str:
    return "\n".join(map(_figure, figures))


def _figure(figure: RunFigure) -> str:
    drawn = figure.draw()
    kind = "wide" if figure.wide else "chart"
    scroll = ' tabindex="0" role="region"' if figure.wide else ""
    label = escape(f"Figure: {figure.name}", quote=True)
    region = f'{scroll} aria-label="{label}"' if scroll else ""
    table = data_uri(_csv(drawn).encode(), "text/csv")
    return (
        f'<figure class="{kind}" id="figure-{figure.name}">'
        f'<div class="drawing"{region}>'
        f"{inline_svg(drawn, figure.name, figure.caption)}</div>"
        f"<figcaption>{escape(figure.caption)} "
        f'<a download="{figure.name}.csv" href="{table}" '
        f'aria-label="Numbers of {figure.name} (CSV)">Numbers (CSV)</a>'
        "</figcaption></figure>"
    )


def _csv(figure: "DataFigure") -> str:
    text = io.StringIO()
    figure.write_csv(csv.writer(text))
    return text.getvalue()


def _explored(shown: dict[str, Any]) -> str:
    full, *parts = shown["embeddings"]
    alone = f", and under each of {', '.join(parts)}" if parts else ""
    return escape(
        f"{len(shown['queries'])} of {shown['total']:,} test images, chosen "
        "at random (seed 0), and their neighbors among all images that are "
        f"searched, under the {full}{alone}."
    )


def _attention(run: Run) -> str:
    if not run.explores_attention:
        return ""
    return f"\n<span>bright: where a {run.part} looks</span>"


def _worst(shown: dict[str, Any]) -> str:
    return escape(
        f"The queries with the lowest {shown['worst']['metric']}, of each "
        "class at most one."
    )


def _environment(result: dict[str, Any]) -> str:
    return _pairs(
        {**result["environment"], "test set (SHA-256)": result["test_set"]}
    )
