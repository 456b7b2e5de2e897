import numpy as np
import pytest

from keras_dml import MetricModel, methods
from keras_dml.data import View
from keras_dml.visualization import (
    attention_maps,
    resize_maps,
    strongest_images,
)
from tests.visualization.test_pictures import abe


def model_of(backbone, grouping: str = "A") -> MetricModel:
    return methods.attentive_grouping(
        backbone,
        embedding_dim=6,
        num_groups=3,
        grouping=grouping,
        view=View((16, 16), 1, 18),
    )


def test_maps_match_the_head_on_the_test_view(tiny_backbone, images) -> None:
    model = model_of(tiny_backbone)
    actual = attention_maps(model, images, batch_size=20)
    assert actual.shape == (48, 8, 8, 3)
    assert actual.dtype == np.float32
    seen = View.of(model).apply(images.images[..., None])
    _, expected = model.head.module(
        model.backbone(seen), return_attention_scores=True
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.slow
def test_masks_are_averaged_over_channels(tiny_backbone, images) -> None:
    model = abe(tiny_backbone)
    seen = images.images[..., None]
    masks = model.outputs_of(seen)["attention"].numpy()
    n, learners, height, width, _ = masks.shape
    maps = attention_maps(model, images, batch_size=20)
    assert maps.shape == (n, height, width, learners)
    for m in range(learners):
        np.testing.assert_allclose(
            maps[..., m], masks[:, m].mean(axis=-1), atol=1e-5
        )


def test_resizing_is_bilinear_for_each_group() -> None:
    """Pixel centers are those of cells; the border continues."""
    maps = np.zeros((1, 2, 2, 2))
    maps[0, :, 1, 0] = maps[0, 1, :, 1] = 1
    resized = resize_maps(maps, (2, 4))[0]
    np.testing.assert_allclose(resized[..., 0], [[0, 0.25, 0.75, 1]] * 2)
    np.testing.assert_allclose(resized[..., 1], [[0] * 4, [1] * 4])


def test_strongest_images_have_the_largest_single_weight() -> None:
    maps = np.zeros((5, 2, 2, 2))
    maps[:, 0, 1, 0] = [0.3, 0.9, 0.1, 0.5, 0.9]
    maps[:, 1, 0, 1] = [0.2, 0.1, 0.6, 0.1, 0.4]
    # Much weight in total, but little at any place.
    maps[2, :, :, 0] = 0.25
    assert strongest_images(maps, 3).tolist() == [[1, 4, 3], [2, 4, 0]]
    assert strongest_images(maps).shape == (2, 5)
    assert strongest_images(np.zeros((20, 2, 2, 3))).shape == (3, 12)


def test_model_without_attention_raises(tiny_backbone, images) -> None:
    for model in (
        methods.baseline(tiny_backbone, embedding_dim=4),
        model_of(tiny_backbone, "C"),
        tiny_backbone,
    ):
        with pytest.raises(ValueError, match='output "attention".*outputs'):
            attention_maps(model, images)


@pytest.mark.parametrize(
    "function", [strongest_images, lambda maps: resize_maps(maps, (4, 4))]
)
def test_other_shapes_raise(function) -> None:
    with pytest.raises(ValueError, match=r"\(N, h, w, P\).*\(2, 2, 3\)"):
        function(np.zeros((2, 2, 3)))
