"""Numbers of charts against loops, and their labels."""

import csv
import io
import json
import re
from itertools import combinations

import numpy as np
import PIL.Image
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from keras_dml import visualization
from keras_dml.evaluation.embedding_space import spectral_decay
from keras_dml.reports.html import asset
from keras_dml.visualization.canvas import PALETTE, series_style


def densities(values, edges) -> np.ndarray:
    return np.histogram(values, edges, density=True)[0]


def parts_and_labels():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(12, 3, 4)).astype(np.float32)
    return parts, np.repeat([4, 1, 8], 4)


def test_cosine_histograms_match_a_loop() -> None:
    parts, labels = parts_and_labels()
    figure = visualization.cosine_histograms(parts, labels, num_bins=7)
    assert isinstance(figure, Figure)
    expected = {"positive": [], "negative": [], "self": []}

    def cosine(x, y):
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    for i, j in combinations(range(12), 2):
        kind = "positive" if labels[i] == labels[j] else "negative"
        for k in range(3):
            expected[kind].append(cosine(parts[i, k], parts[j, k]))
    for i in range(12):
        for k, m in combinations(range(3), 2):
            expected["self"].append(cosine(parts[i, k], parts[i, m]))
    edges = [-1 + 2 * k / 7 for k in range(8)]
    np.testing.assert_allclose(figure.data["from"], edges[:-1])
    for kind, values in expected.items():
        np.testing.assert_allclose(
            figure.data[kind], densities(values, edges), atol=1e-9
        )


@pytest.mark.parametrize("kind", [list, np.array])
def test_pairs_that_share_a_label_are_positive(kind) -> None:
    x = parts_and_labels()[0][:, 0]
    table = np.random.default_rng(1).random((12, 3)) < 0.3
    sets = [set(np.flatnonzero(row).tolist()) for row in table]
    labels = sets if kind is list else table
    histogram = visualization.cosine_histograms(x, labels, num_bins=7).data
    same = (table[:, None] & table).any(-1)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    edges = np.linspace(-1, 1, 8)
    for name, is_same in (("positive", True), ("negative", False)):
        i, j = np.nonzero(np.triu(same == is_same, k=1))
        values = (unit[i] * unit[j]).sum(1)
        np.testing.assert_allclose(histogram[name], densities(values, edges))


@pytest.mark.parametrize("labels", [None, [1, 2], [{1}, 2, 3]])
def test_unfit_labels_raise(labels) -> None:
    with pytest.raises(ValueError, match="one class per image"):
        visualization.cosine_histograms(np.eye(3), labels)
    with pytest.raises(ValueError, match="of embedding_map must be"):
        visualization.embedding_map(np.eye(3), labels)


def test_histograms_without_a_pair_raise() -> None:
    with pytest.raises(ValueError, match="without any pair"):
        visualization.cosine_histograms(np.ones((1, 3)), np.array([0]))


def test_cluster_distances_match_a_loop() -> None:
    parts, labels = parts_and_labels()
    x = parts[:, 0]
    clusters = np.arange(12) % 2
    figure = visualization.cluster_distances(x, labels, clusters, num_bins=5)
    within, between = [], []
    for i, j in combinations(range(12), 2):
        if labels[i] != labels[j]:
            distance = sum((x[i, d] - x[j, d]) ** 2 for d in range(4)) ** 0.5
            (within if clusters[i] == clusters[j] else between).append(distance)
    edges = np.linspace(0, max(within + between), 6)
    np.testing.assert_allclose(figure.data["to"], edges[1:], rtol=1e-6)
    for name, values in (
        ("intra-cluster", within), ("inter-cluster", between),
    ):  # fmt: skip
        histogram = figure.data[name]
        np.testing.assert_allclose(
            histogram, densities(values, edges), rtol=1e-5
        )


def test_spectrum_shows_shares_of_singular_values() -> None:
    rng = np.random.default_rng(3)
    x = {"a": rng.normal(size=(30, 5)), "b": rng.normal(size=(30, 3))}
    figure = visualization.singular_value_spectrum(x)
    for name, values in x.items():
        # Eigenvalues of XᵀX are the squares of singular values.
        squares = np.sort(np.linalg.eigvalsh(values.T @ values))[::-1]
        expected = np.sqrt(squares) / np.sqrt(squares).sum()
        mask = np.array(figure.data["model"]) == name
        np.testing.assert_allclose(figure.data["share"][mask], expected)
        legend = figure.legends[0].get_texts()
        assert any(
            f"ρ = {spectral_decay(values):.2f}" in text.get_text()
            for text in legend
        )


def test_spectrum_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="`embeddings`.*nothing"):
        visualization.singular_value_spectrum({})


def test_compositor_weights_are_written_into_the_cells() -> None:
    weights = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    figure = visualization.compositor_weights(weights)
    rows = list(zip(*figure.data.values(), strict=True))
    assert rows[1] == (1, 2, 0.75)
    assert rows[4] == (3, 1, 1.0)
    assert len(rows) == 6
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [".25", ".75", ".50", ".50", "1.00", ".00"]
    with pytest.raises(ValueError, match=r"\(M, K\).*\(3,\)"):
        visualization.compositor_weights(np.ones(3))


TABLE = "epoch,loss,val_recall@1\n0,2.5,0.25\n1,1.5,\n2,0.5,0.75\n"


def test_history_is_read_with_its_gaps(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE)
    history = visualization.read_history(path)
    np.testing.assert_array_equal(history["val_recall@1"], [0.25, np.nan, 0.75])
    path.write_text(TABLE.partition("\n")[0])
    with pytest.raises(ValueError, match="at least one epoch"):
        visualization.read_history(path)


def test_recall_curves_show_several_runs(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE)
    history = visualization.read_history(path)
    figure = visualization.recall_curves({"K = 1": history, "K = 4": history})
    # Without the second epoch, in which it was not measured.
    assert list(figure.data["run"]) == ["K = 1"] * 2 + ["K = 4"] * 2
    assert list(figure.data["epoch"]) == [1, 3, 1, 3]
    assert list(figure.data["value"]) == [0.25, 0.75] * 2
    one = visualization.metric_curves(history, ["val_recall@1"], "y", "title")
    assert list(one.data["epoch"]) == [1, 3]
    assert list(one.data["value"]) == [0.25, 0.75]
    with pytest.raises(ValueError, match="recall@8.*'K = 1'"):
        visualization.recall_curves({"K = 1": history}, "val_recall@8")


def test_each_loss_has_its_own_axis() -> None:
    """A term of −0.001 must not look like zero beside one of 700."""
    history = {
        "epoch": np.arange(3.0),
        "loss": np.array([700.0, 500.0, 400.0]),
        "decorrelation_of_long_name": np.array([-1e-3, -1.2e-3, -1.3e-3]),
        "val_third": np.array([0.5, 0.4, 0.3]),
    }
    losses = list(history)[1:]
    figure = visualization.loss_curves(history, losses)
    texts = figure.get_suptitle(), figure.get_supxlabel()
    assert texts == ("Training losses", "epoch")
    assert figure.get_supylabel() == "mean of an epoch"
    figure.draw_without_rendering()
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title("right") for axes in shown] == [
        "loss", "decorrelation_of_long_name", "third",
    ]  # fmt: skip
    for axes in shown:
        name = axes.get_title("right")
        (title,) = axes.findobj(
            lambda x, name=name: isinstance(x, Text) and x.get_text() == name
        )
        box = title.get_window_extent()
        assert 0 <= box.x0 and box.x1 <= figure.bbox.width
    assert len(figure.axes) == 4  # The last one is empty.
    for axes, name in zip(shown, losses, strict=True):
        (line,) = axes.lines
        np.testing.assert_array_equal(line.get_ydata(), history[name])
        low, high = axes.get_ylim()
        span = np.ptp(history[name])
        assert span < high - low < 1.3 * span
        assert axes.yaxis.get_offset_text().get_text() == ""
    assert list(figure.data["epoch"]) == [1, 2, 3] * 3
    with pytest.raises(ValueError, match="need a series"):
        visualization.loss_curves(history, [])


def test_looks_are_distinct() -> None:
    looks = [series_style(number) for number in range(36)]
    assert len({(x.color, x.marker) for x in looks}) == 36
    assert len({(x.color, x.line) for x in looks}) == 36


def test_pca_map_has_the_principal_components() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 4)) * [5, 2, 1, 0.5]
    labels = np.arange(20) // 4
    figure = visualization.embedding_map(
        x, labels, {0: "_a$b$"}, projection="pca"
    )
    centered = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centered, full_matrices=False)
    for axis, direction in zip("xy", directions, strict=False):
        projected = centered @ direction
        sign = np.sign(projected @ figure.data[axis])
        np.testing.assert_allclose(figure.data[axis], sign * projected)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == r"1: _a\$b\$"
    assert len(texts) == 5


def test_classes_on_the_map_are_numbered() -> None:
    labels = np.repeat([4, 2, 9], [6, 3, 5])
    x = np.random.default_rng(8).normal(size=(14, 3)) + 9 * labels[:, None]
    figure = visualization.embedding_map(
        x, labels, projection="pca", highlight=2
    )
    texts = {text.get_text(): text.xy for text in figure.axes[0].texts}
    assert texts.keys() == {"1", "2"}
    points = np.stack([figure.data["x"], figure.data["y"]], axis=1)
    for number, label in (("1", 4), ("2", 9)):  # The largest comes first.
        class_points = points[np.array(figure.data["class"]) == label]
        middle = np.sort(class_points, axis=0)
        count = len(class_points)
        expected = (middle[(count - 1) // 2] + middle[count // 2]) / 2
        np.testing.assert_allclose(texts[number], expected)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["1: class 4", "2: class 9"]


def test_tsne_map_keeps_neighbors_together() -> None:
    rng = np.random.default_rng(6)
    labels = np.repeat([0, 1, 2], 12)
    x = 20 * np.eye(3, 8)[labels] + rng.normal(size=(36, 8))
    figure = visualization.embedding_map(x, labels)
    assert figure.axes[0].get_ylabel() == "t-SNE axis 2 (no unit)"
    points = np.stack([figure.data["x"], figure.data["y"]], axis=1)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(axis=1)] == labels).all()


def test_map_draws_complete_classes_up_to_a_number() -> None:
    labels = np.repeat(np.arange(10), 5)
    x = np.random.default_rng(7).normal(size=(50, 3))
    figure = visualization.embedding_map(x, labels, projection="pca", most=17)
    shown, counts = np.unique(figure.data["class"], return_counts=True)
    assert counts.tolist() == [5, 5, 5]
    np.testing.assert_array_equal(
        labels[figure.data["row"]], figure.data["class"]
    )


def test_unfit_arguments_of_the_map_raise() -> None:
    with pytest.raises(ValueError, match="projection='umap'"):
        visualization.embedding_map(np.eye(4), np.arange(4), projection="umap")
    with pytest.raises(ValueError, match="three images"):
        visualization.embedding_map(np.eye(2), np.arange(2))


def test_figure_is_shown_by_a_notebook_and_saved_with_its_numbers(
    tmp_path,
) -> None:
    """IPython asks objects for a PNG, unless `%matplotlib inline` is on."""
    figure = visualization.compositor_weights(np.array([[0.25, 0.75]]))
    shown = PIL.Image.open(io.BytesIO(figure._repr_png_()))
    width, height = figure.get_size_inches() * figure.dpi
    assert shown.format == "PNG"
    assert shown.size == (int(width), int(height))
    for suffix in ("png", "svg"):
        path = tmp_path / "deep" / f"weights.{suffix}"
        table = figure.save(path)
        assert path.stat().st_size > 1000
    rows = list(csv.reader(io.StringIO(table.read_text())))
    assert rows == [
        ["compositor", "learner", "weight"], ["1", "1", "0.25"],
        ["1", "2", "0.75"],
    ]  # fmt: skip


def test_figures_for_a_dark_page_have_other_colors() -> None:
    """Colors are light on dark, and readable."""
    history = {"epoch": np.arange(3), "loss": np.ones(3)}

    def inks(figure) -> list[str]:
        (line,) = figure.axes[0].lines
        texts = [x for x in figure.findobj(Text) if x.get_text()]
        return [to_hex(x.get_color()) for x in (line, *texts)]

    with visualization.dark():
        drawn = visualization.loss_curves(history, ["loss"])
    drawn.savefig(io.BytesIO(), format="png")
    papers = [to_hex(drawn.get_facecolor()), to_hex("white")]
    light = visualization.loss_curves(history, ["loss"])
    for chart, paper in zip((drawn, light), papers, strict=True):
        assert min(contrast(ink, paper) for ink in inks(chart)) >= 4.5
    assert not set(inks(drawn)) & set(inks(light))


def test_every_color_of_the_palette_has_contrast() -> None:
    """To the paper of its scheme: 4.5 for text, 3 for what is drawn."""
    for name, colors in PALETTE.items():
        if name in ("paper", "raised", "line"):
            continue
        is_text = name in ("ink", "soft", "link", "right", "wrong")
        for ink, paper in zip(colors, PALETTE["paper"], strict=True):
            assert contrast(ink, paper) >= (4.5 if is_text else 3), name


def test_pages_have_the_color_scale_of_figures() -> None:
    """Five colors of magma, between which pages interpolate."""
    script = asset("elements.js")
    stops = re.search(r"COLORS = (\[\[.*?\]\]);", script, re.S)[1]
    expected = colormaps["magma"]([0, 64, 128, 191, 255])[:, :3] * 255
    np.testing.assert_allclose(json.loads(stops), expected, atol=4)


def contrast(first: str, second: str) -> float:
    """Contrast ratio as WCAG defines it."""

    def light(color: str) -> float:
        x = np.array(to_rgb(color))
        x = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
        return float(x @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([light(first), light(second)])
    return (high + 0.05) / (low + 0.05)


X = np.random.default_rng(0).normal(size=(12, 4))
LABELS = np.arange(12) // 3
HISTORY = {
    "epoch": np.arange(2.0),
    "loss": np.array([2.0, 1.0]),
    "val_recall@1": np.array([0.25, 0.5]),
}
# A mean below zero, with the sign of an axis.
OPPOSITE = np.array([[1.0, 0.1], [-1.0, 0.1], [1.0, 0.0]])


# Entries of the legend, and functions that draw the chart.
CHARTS = [
    (
        ["positive (mean \u22120.98)", "negative (mean 0.00)"],
        lambda: visualization.cosine_histograms(OPPOSITE, [0, 0, 1]),
    ),
    (
        ["positive (mean", "negative (mean", "self (mean"],
        lambda: visualization.cosine_histograms(X.reshape(12, 2, 2), LABELS),
    ),
    (
        ["intra-cluster (mean", "inter-cluster (mean"],
        lambda: visualization.cluster_distances(X, LABELS, LABELS % 2),
    ),
    (
        ["one (ρ = ", "two (ρ = "],
        lambda: visualization.singular_value_spectrum({"one": X, "two": X}),
    ),
    (
        ["1: ants", "2: class 1"],
        lambda: visualization.embedding_map(
            X, LABELS, {0: "ants"}, projection="pca", highlight=2
        ),
    ),
    ([], lambda: visualization.compositor_weights(np.eye(2))),
    (
        ["K = 1", "K = 4"],
        lambda: visualization.recall_curves(
            {"K = 1": HISTORY, "K = 4": HISTORY}
        ),
    ),
    (
        ["loss", "recall@1"],
        lambda: visualization.metric_curves(
            HISTORY, ["loss", "val_recall@1"], "a share", "Measured"
        ),
    ),
]


@pytest.mark.parametrize(("names", "draw"), CHARTS)
def test_chart_names_its_axes_and_series(names, draw) -> None:
    figure = draw()
    axes = figure.axes[0]
    assert axes.get_title() and axes.get_xlabel() and axes.get_ylabel()
    legends = [text.get_text() for x in figure.legends for text in x.texts]
    assert len(legends) == len(names)
    for text, name in zip(legends, names, strict=True):
        assert text.startswith(name)
