import keras
import numpy as np
import pytest

from keras_dml import MetricModel, methods
from keras_dml.data import ImageSet, View
from keras_dml.visualization import (
    attention_maps,
    resize_maps,
    strongest_images,
)


def model_of(backbone, grouping: str = "A") -> MetricModel:
    return methods.attentive_grouping(
        backbone,
        embedding_dim=6,
        num_groups=3,
        grouping=grouping,
        view=View((16, 16), 1, 18),
    )


@pytest.mark.parametrize("grouping", ["A", "G"])
def test_maps_are_the_heads_for_the_test_view(
    grouping, tiny_backbone, images
) -> None:
    model = model_of(tiny_backbone, grouping)
    actual = attention_maps(model, images, batch_size=20)
    assert actual.shape == (48, 8, 8, 3)
    assert actual.dtype == np.float32
    seen = View.of(model).apply(images.images[..., None])
    _, expected = model.head.module(
        model.backbone(seen), return_attention_scores=True
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_bright_places_attract_a_query_for_brightness(images) -> None:
    """A query that looks for bright pixels finds where the blob is."""
    inputs = keras.Input((16, 16, 1))
    pixels = keras.layers.Rescaling(1 / 255)(inputs)
    model = methods.attentive_grouping(
        keras.Model(inputs, pixels), embedding_dim=1, num_groups=1
    )
    model.head.module.queries.assign([[1.0]])
    model.head.module.key_kernel.assign([[50.0]])
    maps = attention_maps(model, images)[..., 0].reshape(48, -1)
    brightest = images.images.reshape(48, -1).argmax(axis=1)
    found = maps[np.arange(48), brightest]
    np.testing.assert_array_equal(found, maps.max(axis=1))


def test_masks_count_with_their_mean_over_channels(
    tiny_backbone, images
) -> None:
    model = methods.abe(
        tiny_backbone,
        embedding_dim=6,
        num_learners=3,
        branch="relu_0",
        attention_end="relu_1",
    )
    seen = images.images[..., None]
    masks = model.outputs_of(seen)["attention"].numpy()
    n, learners, height, width, _ = masks.shape
    maps = attention_maps(model, images, batch_size=20)
    assert maps.shape == (n, height, width, learners)
    for m in range(learners):
        np.testing.assert_allclose(
            maps[..., m], masks[:, m].mean(axis=-1), atol=1e-5
        )


def bilinear(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """One map, pixel by pixel; the border continues."""
    h, w = grid.shape
    resized = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * h / height - 0.5, 0), h - 1)
            x = min(max((j + 0.5) * w / width - 0.5, 0), w - 1)
            top, left = min(int(y), h - 2), min(int(x), w - 2)
            for di, wy in ((0, top + 1 - y), (1, y - top)):
                for dj, wx in ((0, left + 1 - x), (1, x - left)):
                    resized[i, j] += wy * wx * grid[top + di, left + dj]
    return resized


@pytest.mark.parametrize("size", [(16, 20), (7, 5), (6, 8)])
def test_resizing_is_bilinear_for_each_group(size) -> None:
    maps = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    resized = resize_maps(maps, size)
    assert resized.shape == (2, *size, 5)
    for n in range(2):
        for p in range(5):
            np.testing.assert_allclose(
                resized[n, :, :, p],
                bilinear(maps[n, :, :, p], *size),
                atol=1e-5,
            )


def test_strongest_images_have_the_largest_single_weight() -> None:
    maps = np.zeros((5, 2, 2, 2))
    maps[:, 0, 1, 0] = [0.3, 0.9, 0.1, 0.5, 0.9]
    maps[:, 1, 0, 1] = [0.2, 0.1, 0.6, 0.1, 0.4]
    # Of much weight in all, and little in any place.
    maps[2, :, :, 0] = 0.25
    assert strongest_images(maps, 3).tolist() == [[1, 4, 3], [2, 4, 0]]
    assert strongest_images(maps).shape == (2, 5)
    assert strongest_images(np.zeros((20, 2, 2, 3))).shape == (3, 12)


def test_model_without_attention_is_refused(tiny_backbone, images) -> None:
    for model in (
        methods.baseline(tiny_backbone, embedding_dim=4),
        model_of(tiny_backbone, "C"),
        tiny_backbone,
    ):
        with pytest.raises(ValueError, match='output "attention".*outputs'):
            attention_maps(model, images)


def test_no_images_are_refused(tiny_backbone) -> None:
    none = ImageSet(np.zeros((0, 16, 16), "uint8"), [])
    with pytest.raises(ValueError, match="must not be empty"):
        attention_maps(model_of(tiny_backbone), none)


@pytest.mark.parametrize(
    "function", [strongest_images, lambda maps: resize_maps(maps, (4, 4))]
)
def test_other_shapes_are_refused(function) -> None:
    with pytest.raises(ValueError, match=r"\(N, h, w, P\).*\(2, 2, 3\)"):
        function(np.zeros((2, 2, 3)))


def test_count_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`num_images`.*num_images=0"):
        strongest_images(np.zeros((2, 2, 2, 1)), 0)
