from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from keras_dml.methods import METHODS
from keras_dml.reports import Run, comparisons, figures_of
from keras_dml.reports.page import explorer
from keras_dml.runs.folder import read_queries
from keras_dml.visualization.data_figure import DataFigure

ALWAYS = {"validation", "losses", "cosines", "spectrum", "map", "retrieval"}
OWN = {
    "baseline": set(),
    "divide_and_conquer": {"clusters"},
    "attentive_grouping": {"attention", "strongest"},
    "abe": {"attention", "strongest", "masks"},
    "dcml": {"compositors"},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", OWN)
def test_each_method_has_its_figures(method, run_of, tmp_path) -> None:
    run = Run(run_of(method))
    figures = list(figures_of(run))
    assert {figure.name for figure in figures} == ALWAYS | OWN[method]
    for figure in figures:
        if method != "baseline" and figure.name in ALWAYS:
            continue
        table = figure.draw().save(tmp_path / f"{figure.name}.png", dpi=40)
        assert len(table.read_text().splitlines()) > 1
        assert figure.caption.endswith(".")


@pytest.fixture
def declare(monkeypatch) -> Callable[..., None]:
    """Replaces the figures of a method."""

    def change(method: str, *figures: Any) -> None:
        entry = METHODS[method]
        traits = replace(entry.details["traits"], figures=figures)
        changed = replace(entry, details={"traits": traits})
        monkeypatch.setitem(METHODS._entries, method, changed)

    return change


def sizes(run: Run) -> DataFigure:
    """Images of every test class."""
    return DataFigure({"images": np.bincount(run.images.labels)})


def test_method_declares_its_figures(run_of, declare) -> None:
    run = Run(run_of("baseline"))
    # It has no attention to show.
    declare("baseline", sizes, "attention_overlays")
    figures = {figure.name: figure for figure in figures_of(run)}
    assert set(figures) == ALWAYS | {"sizes"}
    assert figures["sizes"].caption == "Images of every test class."
    drawn = figures["sizes"].draw()
    assert drawn.data["images"].sum() == len(run.images)
    declare("baseline", "attention_overlay")
    with pytest.raises(ValueError, match="Traits must be .*attention_overlay'"):
        list(figures_of(run))


@pytest.mark.slow
def test_figures_that_are_not_declared_are_not_drawn(run_of, declare) -> None:
    run = Run(run_of("attentive_grouping"))
    declare("attentive_grouping", "strongest_attention")
    assert {f.name for f in figures_of(run)} == ALWAYS | {"strongest"}
    assert explorer(run, 3)["attention"] is None
    declare("attentive_grouping", "attention_overlays")
    assert explorer(run, 3)["attention"] is not None


@pytest.mark.slow
def test_captions_explain_attention_weights(run_of) -> None:
    for method, words, sums_to_one in (
        ("attentive_grouping", "weights of a map sum to 1", True),
        ("abe", "mean of a mask over its channels", False),
    ):
        run = Run(run_of(method))
        captions = {x.name: x.caption for x in figures_of(run)}
        assert words in captions["attention"]
        sums = run.attention.sum(axis=(1, 2))
        assert np.allclose(sums, 1, atol=1e-4) == sums_to_one
        assert f"one image, two {run.part}s" in captions["cosines"]
        assert run.part_names == [f"{run.part} 1", f"{run.part} 2"]


def test_examples_are_the_best_typical_and_worst_of_their_classes(
    run_of,
) -> None:
    run = Run(run_of("baseline"))
    assert run.metric == "map@r"
    results = read_queries(run.folder / "queries.npz")
    values = results.per_query["map@r"].tolist()
    rows = results.query_rows.tolist()
    middle = float(np.median(values))
    for kind, badness in (
        ("best", lambda x: -x),
        ("typical", lambda x: abs(x - middle)),
        ("worst", lambda x: x),
    ):
        first: dict[int, tuple[float, int, float]] = {}
        for row, value in zip(rows, values, strict=True):
            label = int(run.images.labels[row])
            candidate = badness(value), row, value
            first[label] = min(first.get(label, (9.0, 0, 0.0)), candidate)
        expected = [(row, x) for _, row, x in sorted(first.values())[:2]]
        assert run.examples(2)[kind] == expected


@pytest.mark.slow
def test_runs_are_compared_by_epoch_and_spectrum(run_of) -> None:
    runs = [Run(run_of("baseline")), Run(run_of("divide_and_conquer"))]
    curves, spectra = (figure.draw() for figure in comparisons(runs))
    assert set(curves.data["run"]) == {"small", "divided"}
    mask = np.array(curves.data["run"]) == curves.data["run"][-1]
    np.testing.assert_array_equal(
        np.array(curves.data["value"])[mask],
        runs[1].history["val_recall@1"],
    )
    assert set(spectra.data["model"]) == set(curves.data["run"])
