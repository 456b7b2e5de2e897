"""Titles, names of axes and legends of the figures."""

import numpy as np
import pytest

from keras_dml import visualization
from keras_dml.data import View
from tests.visualization.test_pictures import abe

X = np.random.default_rng(0).normal(size=(12, 4))
LABELS = np.arange(12) // 3
VIEW = View((16, 16), 1)
MAPS = np.arange(48 * 8.0).reshape(48, 2, 2, 2)
HISTORY = {
    "epoch": np.arange(2.0),
    "loss": np.array([2.0, 1.0]),
    "val_recall@1": np.array([0.25, 0.5]),
}
# A mean below zero, with the sign of an axis.
OPPOSITE = np.array([[1.0, 0.1], [-1.0, 0.1], [1.0, 0.0]])


# By the title: horizontal axis, vertical axis, legend; how it is drawn.
CHARTS = {
    "Cosines of pairs": (
        "cosine of the two embeddings", "density",
        ["positive (mean \u22120.98)", "negative (mean 0.00)"],
        lambda: visualization.cosine_histograms(OPPOSITE, [0, 0, 1]),
    ),
    "Cosines of pairs of sub-embeddings": (
        "cosine of the two embeddings", "density",
        ["positive (mean", "negative (mean", "self (mean"],
        lambda: visualization.cosine_histograms(X.reshape(12, 2, 2), LABELS),
    ),
    "Negative pairs within and between clusters": (
        "Euclidean distance", "density",
        ["intra-cluster (mean", "inter-cluster (mean"],
        lambda: visualization.cluster_distances(X, LABELS, LABELS % 2),
    ),
    "Singular values of the embeddings": (
        "number of the singular value, by size", "share of their sum (log)",
        ["one (ρ = ", "two (ρ = "],
        lambda: visualization.singular_value_spectrum({"one": X, "two": X}),
    ),
    "Map of the embeddings": (
        "principal component 1", "principal component 2",
        ["1: ants", "2: class 1"],
        lambda: visualization.embedding_map(
            X, LABELS, {0: "ants"}, projection="pca", highlight=2
        ),
    ),
    "Mean absolute weights": (
        "learner", "compositor", [],
        lambda: visualization.compositor_weights(np.eye(2)),
    ),
    "recall@1 while training, validation classes": (
        "epoch", "recall@1", ["K = 1", "K = 4"],
        lambda: visualization.recall_curves(
            {"K = 1": HISTORY, "K = 4": HISTORY}
        ),
    ),
    "Measured": (
        "epoch", "a share", ["loss", "recall@1"],
        lambda: visualization.metric_curves(
            HISTORY, ["loss", "val_recall@1"], "a share", "Measured"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", CHARTS)
def test_charts(title) -> None:
    xlabel, ylabel, names, draw = CHARTS[title]
    figure = draw()
    axes = figure.axes[0]
    assert axes.get_title() == title
    assert (axes.get_xlabel(), axes.get_ylabel()) == (xlabel, ylabel)
    legends = [text.get_text() for x in figure.legends for text in x.texts]
    assert len(legends) == len(names)
    for text, name in zip(legends, names, strict=True):
        assert text.startswith(name)


def test_axes_of_tsne_have_no_unit() -> None:
    axes = visualization.embedding_map(X, LABELS).axes[0]
    assert axes.get_ylabel() == "t-SNE axis 2 (no unit)"


def test_losses() -> None:
    figure = visualization.loss_curves(HISTORY, ["loss"])
    texts = figure.get_suptitle(), figure.get_supxlabel()
    assert texts == ("Training losses", "epoch")
    assert figure.get_supylabel() == "mean of an epoch"


def test_retrieval(images) -> None:
    x = np.eye(48)
    figure = visualization.retrieval_grid(images, x, [3], VIEW, num_neighbors=1)
    title = "Query, and the nearest images by their cosine"
    assert figure.get_suptitle() == title
    query, neighbor = (axes.get_xlabel() for axes in figure.axes)
    assert query == "query\n0"
    assert neighbor == "✓ 0.00\n0"


@pytest.mark.slow
def test_attention(images, tiny_backbone) -> None:
    figure = visualization.attention_overlays(images, MAPS, [9], VIEW)
    assert figure.get_suptitle() == "Attention of each group"
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["", "group 1", "group 2"]
    assert figure.axes[0].get_xlabel() == "1"
    figure = visualization.strongest_attention(
        images, MAPS, VIEW, num_images=2, part="learner"
    )
    title = "The 2 images to which each learner attends most"
    assert figure.get_suptitle() == title
    strips = [strip.get_supylabel() for strip in figure.subfigs]
    assert strips == ["learner 1", "learner 2"]
    figure = visualization.attention_masks(
        abe(tiny_backbone), images, [4], learners=[0, 1], channels=[2]
    )
    assert figure.get_suptitle() == "Attention masks"
    assert figure.axes[0].get_title() == "0"
    names = [axes.get_ylabel() for axes in figure.axes[1:]]
    assert names == [
        "channel 2\nlearner 1", "channel 2\nlearner 2", "mean of all",
    ]  # fmt: skip
