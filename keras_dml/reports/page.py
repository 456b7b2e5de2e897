"""The report of a run: one self-contained HTML page with an explorer."""

import csv
import io
import json
import math
import os
from html import escape
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.data.pictures import each_picture
from keras_dml.data.thumbnails import data_uri, thumbnail
from keras_dml.evaluation import bootstrap
from keras_dml.recipes import dump
from keras_dml.reports.figures import Run, RunFigure, figures_of
from keras_dml.reports.html import asset, document, inline_svg
from keras_dml.runs.outcome import VERDICTS, definition, format_interval
from keras_dml.utils.files import write_atomically
from keras_dml.utils.progress import waiting
from keras_dml.visualization import nearest
from keras_dml.visualization.attention import encoded_maps

CURVES = ("validation", "losses")
THUMBNAIL = 72
"""Longer side of a thumbnail, in pixels, at most."""

_HEADLINES = {
    "better": ("right", "Training helped"),
    "worse": ("wrong", "Training made it worse"),
    "within the noise": ("", "Training made no clear difference"),
    "too few classes to tell": ("", "Too few classes to tell"),
}


def report(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    num_queries: int = 60,
    progress: bool | None = None,
    *,
    trust: bool = False,
) -> Path:
    """Writes the report of a finished run as one HTML page.

    The page can be opened from disk, without a network. It contains the recipe,
    best, typical and worst queries, the metrics with confidence intervals and
    verdicts, curves, the figures of the method, and an explorer of neighbors in
    the full embedding and in each sub-embedding.

    Args:
        folder: The folder of the run.
        output: The page; `report.html` in the run's folder by default.
        num_queries: Number of test images to explore, chosen at random with a
            fixed seed.
        progress: Whether to show a progress bar; by default, if standard error
            is a terminal.
        trust: As for `runs.load_model`.

    Returns:
        The path of the page.

    Raises:
        RecipeError: If the folder is not that of a run.
        FileNotFoundError: If the run is not finished.
    """
    run = Run(folder, trust=trust)
    path = Path(output) if output else run.folder / "report.html"
    with waiting("Searching the test images", progress):
        content = explorer(run, num_queries)
    with waiting("Drawing figures", progress):
        text = render(run, content)
    write_atomically(path, text)
    return path


def explorer(
    run: Run,
    num_queries: int = 60,
    num_examples: int = 4,
    num_neighbors: int = 6,
) -> dict[str, Any]:
    """The data of the explorer, ready for JSON.

    Args:
        num_queries: Random queries that can be explored.
        num_examples: Best, typical and worst queries, each.
        num_neighbors: Images shown for each query and embedding.

    Returns:
        "neighbors" has for each query, for each embedding, its nearest as row,
        cosine, and 1 if it is of the query's class, else 0; "images" for each
        row its class, name and thumbnail; "attention" for each query the maps'
        shape and bytes, or nothing.
    """
    examples, images = run.examples(num_examples), run.images
    queries = run.queries(num_queries).tolist()
    listed = (row for pairs in examples.values() for row, _ in pairs)
    rows = np.unique([*queries, *listed])
    spaces = [run.embeddings]
    if run.parts is not None:
        spaces += list(np.moveaxis(run.parts, 1, 0))
    neighbors: dict[int, list[Any]] = {row: [] for row in rows.tolist()}
    for embeddings in spaces:
        nearest_rows, cosines = nearest(
            embeddings,
            rows,
            num_neighbors,
            gallery=run.splits.gallery_rows,
            labels=images.labels,
            groups=run.splits.cameras,
        )
        for i, row in enumerate(neighbors):
            is_alike = images.alike(row, nearest_rows[i])
            hits = zip(nearest_rows[i], cosines[i], is_alike, strict=True)
            neighbors[row].append(
                [
                    [int(x), round(float(cosine), 3), int(is_right)]
                    for x, cosine, is_right in hits
                    if x >= 0
                ]
            )
    triples = (x for lists in neighbors.values() for x in chain(*lists))
    pictured = np.unique([*rows, *(x for x, *_ in triples)])
    pictures = each_picture(images, pictured, run.view)
    attention = None
    if run.explores_attention:
        attention = {
            "height": run.attention.shape[1],
            "width": run.attention.shape[2],
            "maps": {
                row: encoded_maps(run.attention[row]) for row in neighbors
            },
        }
    return {
        "embeddings": ["full embedding", *run.part_names],
        "queries": queries,
        "examples": examples,
        "metric": run.metric,
        "neighbors": neighbors,
        "images": {
            row: [*_names(images, row), thumbnail(x, THUMBNAIL, "webp", 75)]
            for row, x in zip(pictured.tolist(), pictures, strict=True)
        },
        "attention": attention,
        "total": len(images),
    }


def _names(images: Examples, row: int) -> list[str]:
    """The class of an image, and the name of the image itself."""
    name = f"image {row}"
    if images.ids is not None:
        name = images.ids[row]
    elif not isinstance(images, ImageSet):
        name = f"example {images.called(row)}"
    elif images.paths is not None:
        name = os.path.basename(images.paths[row])
    class_name = images.class_called(row)
    return [class_name if images.names else f"class {class_name}", name]


def render(run: Run, content: dict[str, Any]) -> str:
    """The text of the page; `content` is that of its explorer."""
    # The examples show what the figure "retrieval" does.
    run_figures = [x for x in figures_of(run) if x.name != "retrieval"]
    figures = {figure.name: _figure(figure) for figure in run_figures}
    rest = [name for name in figures if name not in CURVES]
    test_set = {"test set (SHA-256)": run.outcome.test_set}
    kind, line = headline(run)
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    full, *parts = content["embeddings"]
    alone = f", and by each of {', '.join(parts)}" if parts else ""
    attention = f"Bright: where a {run.part} looks."
    body = Template(asset("report.html")).substitute(
        title=escape(run.recipe.name),
        kind=kind,
        headline=escape(line),
        about=escape(_about(run)),
        before=escape(run.outcome.before_title()),
        metrics=_metrics(run),
        verdicts=escape(VERDICTS),
        definitions=_pairs({x: definition(x) for x in run.results}),
        curves="\n".join(figures[name] for name in CURVES),
        figures="\n".join(figures[name] for name in rest),
        explored=escape(
            f"{len(content['queries'])} of {content['total']:,} test images, "
            "chosen at random (seed 0), and their nearest neighbors in the "
            f"whole gallery, by the {full}{alone}."
        ),
        attention=f'<p class="note">{attention}</p>'
        if run.explores_attention
        else "",
        examples=escape(
            f"Test images and their nearest neighbors. By {run.metric}: the "
            "highest, those nearest to the median, and the lowest; in each "
            "list at most one image of a class."
        ),
        recipe=escape(dump(run.recipe)),
        environment=_pairs(run.outcome.environment | test_set),
        # JSON must not end the element that it stands in.
        data=data.replace("<", "\\u003c"),
    )
    script = asset("elements.js") + asset("explorer.js")
    return document(f"{run.recipe.name} – report", body, script)


def _about(run: Run) -> str:
    recipe, outcome = run.recipe, run.outcome
    parts = [
        f"{recipe.method.name} on {recipe.data.name}, backbone "
        f"{recipe.backbone.name}: trained on {outcome.images['train']:,} "
        f"images, measured on {outcome.images['test']:,} images of "
        f"{run.images.num_classes:,} test classes.",
        *outcome.baseline_lines(),
        outcome.choice_line(),
        f"Training took {outcome.seconds['training']:,.0f} s.",
    ]
    if outcome.interrupted:
        parts.append("The training was interrupted.")
    return " ".join(parts)


def headline(run: Run) -> tuple[str, str]:
    """The CSS class and the words of the headline."""
    metric, results = run.metric, run.results
    kind, words = _HEADLINES.get(run.outcome.verdicts[metric], ("", "Trained"))
    before, after = run.outcome.before[metric], results[metric]
    than = "" if run.outcome.baseline is None else " of the untouched network"
    return kind, (
        f"{words}: {metric} {before:.2f}{than} → {after:.2f} on "
        f"{results.num_classes:,} unseen classes"
    )


def _metrics(run: Run) -> str:
    intervals = bootstrap(run.results) if run.results.per_query else {}
    rows = []
    for name, value in run.results.items():
        before = run.outcome.before.get(name, math.nan)
        verdict = run.outcome.verdicts.get(name, "")
        kind = _HEADLINES.get(verdict, ("",))[0]
        sign = "▲ " if value > before else "▼ " if value < before else ""
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th><td>{before:.4f}</td>'
            f'<td><strong>{value:.4f}</strong> <span class="interval">'
            f"{format_interval(intervals.get(name))}</span></td>"
            f'<td class="{kind}">{sign}{escape(verdict)}</td></tr>'
        )
    return "\n".join(rows)


def _pairs(texts: dict[str, str]) -> str:
    """The lines of a list of terms and their descriptions."""
    return "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in texts.items()
    )


def _figure(figure: RunFigure) -> str:
    data_figure = figure.draw()
    numbers = io.StringIO()
    data_figure.write_csv(csv.writer(numbers))
    table = data_uri(numbers.getvalue().encode(), "text/csv")
    kind, region = "chart", ""
    if figure.wide:
        label = escape(f"Figure: {figure.name}")
        region = f' tabindex="0" role="region" aria-label="{label}"'
        kind = "wide"
    return (
        f'<figure class="{kind}" id="figure-{figure.name}">'
        f'<div class="drawing"{region}>'
        f"{inline_svg(data_figure, figure.name, figure.caption)}</div>"
        f"<figcaption>{escape(figure.caption)} "
        f'<a download="{figure.name}.csv" href="{table}" '
        f'aria-label="Numbers of {figure.name} (CSV)">Numbers (CSV)</a>'
        "</figcaption></figure>"
    )
