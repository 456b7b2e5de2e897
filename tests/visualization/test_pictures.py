"""Figures with images: their numbers and marks."""

import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.data import ImageSet, View
from keras_dml.evaluation import embed
from keras_dml.visualization import (
    attention_maps,
    attention_masks,
    attention_overlays,
    compositor_weights,
    head_outputs,
    retrieval_grid,
    strongest_attention,
)
from keras_dml.visualization.attention import most_different_channels

VIEW = View((16, 16), 1)


@pytest.fixture(scope="module")
def grouping():
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    return methods.attentive_grouping(backbone, embedding_dim=6, num_groups=3)


def abe(backbone):
    return methods.abe(
        backbone,
        embedding_dim=8,
        num_learners=4,
        branch="relu_0",
        attention_end="relu_1",
    )


def test_retrieval_grid_marks_right_and_wrong(images) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 5)).astype(np.float32)
    figure = retrieval_grid(images, x, np.array([3, 40]), VIEW, num_neighbors=4)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    data = {name: np.asarray(column) for name, column in figure.data.items()}
    assert data["query"].tolist() == [3] * 4 + [40] * 4
    assert data["rank"].tolist() == [1, 2, 3, 4] * 2
    for i, query in enumerate((3, 40)):
        similar = unit @ unit[query]
        similar[query] = -2
        best = np.argsort(-similar)[:4]
        row_slice = slice(4 * i, 4 * i + 4)
        assert data["row"][row_slice].tolist() == best.tolist()
        np.testing.assert_allclose(
            data["cosine"][row_slice], similar[best], atol=1e-5
        )
        right = images.labels[best] == images.labels[query]
        assert data["right"][row_slice].tolist() == right.astype(int).tolist()
    title = "Query, and the nearest images by their cosine"
    assert figure.get_suptitle() == title
    cells = [x for x in figure.axes if not x.get_xlabel().startswith("query")]
    for axes, right in zip(cells, data["right"], strict=True):
        assert axes.get_xlabel().startswith("✓ " if right else "✗ ")
        line = axes.spines["left"].get_linestyle()
        assert (line == "-") == bool(right)


def test_retrieval_grid_leaves_missing_hits_empty(images) -> None:
    few = images.select(np.array([0, 1, 8]))
    x = np.eye(3, dtype=np.float32)
    figure = retrieval_grid(
        few,
        x,
        np.array([0, 2]),
        VIEW,
        num_neighbors=5,
        gallery=np.array([1, 2]),
    )
    assert list(figure.data["query"]) == [0, 0, 2]
    assert list(figure.data["row"]) == [1, 2, 1]
    with pytest.raises(ValueError, match="`queries`.*nothing"):
        retrieval_grid(few, x, np.array([], int), VIEW)


def test_head_outputs_match_the_model(grouping, images) -> None:
    model = grouping
    outputs = head_outputs(
        model, images, ["embedding", "parts", "nothing"], batch_size=20
    )
    assert set(outputs) == {"embedding", "parts"}
    np.testing.assert_allclose(
        outputs["embedding"], embed(model, images), atol=1e-6
    )
    parts = np.concatenate(list(np.moveaxis(outputs["parts"], 1, 0)), axis=1)
    np.testing.assert_allclose(
        parts / np.sqrt(3), outputs["embedding"], atol=1e-6
    )
    empty = ImageSet(np.zeros((0, 16, 16), "uint8"), [])
    with pytest.raises(ValueError, match="must not be empty"):
        head_outputs(model, empty)


def test_overlays_show_the_weights_of_the_maps(grouping, images) -> None:
    maps = attention_maps(grouping, images)
    figure = attention_overlays(images, maps, [7, 1], VIEW)
    rows = list(zip(*figure.data.values(), strict=True))
    assert list(figure.data)[1] == "group"
    assert len(rows) == 2 * 3 * maps.shape[1] * maps.shape[2]
    for row, group, y, x, weight in rows[::7]:
        assert weight == maps[row, y, x, group - 1]
    assert figure.get_suptitle() == "Attention of each group"
    titles = [axes.get_title() for axes in figure.axes[:4]]
    assert titles == ["", "group 1", "group 2", "group 3"]
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[0] == "0"
    first = maps[7, ..., 0]
    assert labels[1] == f"{first.min():.2f} – {first.max():.2f}"
    with pytest.raises(ValueError, match="`rows`.*nothing"):
        attention_overlays(images, maps, [], VIEW)


def test_strongest_attention_shows_each_group(images) -> None:
    maps = np.random.default_rng(1).random((48, 3, 3, 2)).astype(np.float32)
    figure = strongest_attention(
        images, maps, VIEW, num_images=3, part="learner"
    )
    peaks = maps.reshape(48, 9, 2).max(axis=1)
    expected = [
        (group + 1, place + 1, row, images.labels[row], peaks[row, group])
        for group in range(2)
        for place, row in enumerate(np.argsort(-peaks[:, group])[:3])
    ]
    title = "The 3 images to which each learner attends most"
    assert figure.get_suptitle() == title
    strips = [strip.get_supylabel() for strip in figure.subfigs]
    assert strips == ["learner 1", "learner 2"]
    assert list(figure.data)[0] == "learner"
    assert list(zip(*figure.data.values(), strict=True)) == expected


@pytest.mark.slow
def test_attention_masks_show_learners_and_channels(
    tiny_backbone, images
) -> None:
    model = abe(tiny_backbone)
    masks = model.outputs_of(images.images[[4, 9], ..., None])["attention"]
    masks = masks.numpy()
    figure = attention_masks(
        model, images, [4, 9], learners=[0, 3], channels=[2]
    )
    assert figure.get_suptitle() == "Attention masks"
    names = [axes.get_ylabel() for axes in figure.axes[2::2]]
    assert names == [
        "channel 2\nlearner 1", "channel 2\nlearner 4", "mean of all",
    ]  # fmt: skip
    cells = {
        key: value
        for *key, value in zip(*figure.data.values(), strict=True)
        for key in [tuple(map(str, key))]
    }
    size = masks.shape[2] * masks.shape[3]
    assert len(cells) == 3 * 2 * size
    for (row, channel, learner, y, x), value in cells.items():
        i = [4, 9].index(int(row))
        if channel == "mean":
            expected = masks[i, :, int(y), int(x)].mean()
        else:
            k, c = int(learner) - 1, int(channel)
            expected = masks[i, k, int(y), int(x), c]
        assert value == pytest.approx(expected, abs=1e-5)


def test_most_different_channels_are_found() -> None:
    masks = np.zeros((2, 3, 2, 2, 4))
    masks[:, 0, ..., 2] = 1.0
    masks[:, 1, ..., 1] = 0.5
    masks[..., 3] = 9.0  # Large, and the same for all learners.
    assert most_different_channels(masks, 2) == [2, 1]


def test_maps_without_learners_and_channels_raise(grouping, images) -> None:
    with pytest.raises(ValueError, match="masks by learner"):
        attention_masks(grouping, images, [0])


def test_figures_leave_pyplot_alone() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    compositor_weights(np.eye(2))
    assert pyplot.get_fignums() == before
