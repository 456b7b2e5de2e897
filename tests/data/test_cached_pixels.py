"""Tests that pixels which are kept are those that would be made again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_dml.data import ImageSet, View, eval_batches
from keras_dml.data.resizing import RESIZE_MODES
from tests.data.cached import CACHES, LABELS, check_equal, epochs_of

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("name", ["mixed", "alike"])
@pytest.mark.parametrize(
    "options",
    [
        {"flip": True},
        pytest.param(
            {"flip": True, "pad": 3, "resize": 20, "channels": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"crop": "center", "flip": True, "resize": 24},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"crop": "random_resized", "flip": True}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"crop": "random_resized", "resize": 20, "channels": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"num_views": 2, "size": (12, 16)}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"resize_mode": "longest", "resize": 20, "flip": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"resize_mode": "squash", "size": (12, 16), "channels": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"resize_mode": "squash", "resize": 20, "crop": "random_resized"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_pixel_changes(
    request: pytest.FixtureRequest, name: str, options: dict[str, Any]
) -> None:
    images = request.getfixturevalue(name)
    expected = epochs_of(images, **options)
    for cache in CACHES:
        check_equal(epochs_of(images, cache=cache, **options), expected)


@pytest.mark.slow
@pytest.mark.parametrize("mode", RESIZE_MODES)
@pytest.mark.parametrize("name", ["mixed", "alike"])
def test_centers_are_the_test_view(
    request: pytest.FixtureRequest, name: str, mode: str
) -> None:
    images = request.getfixturevalue(name)
    view = View((14, 16), 3, 20, mode)
    expected = np.concatenate(list(eval_batches(images, view)))
    options = {"size": view.size, "resize": 20, "resize_mode": mode}
    for cache in CACHES:
        epochs = epochs_of(images, 1, crop="center", cache=cache, **options)
        for x, y in epochs:
            np.testing.assert_array_equal(x, expected[y["index"]])


@pytest.mark.slow
def test_boxes(mixed: ImageSet) -> None:
    boxes = np.tile([3, 4, 50, 20], (len(mixed), 1))
    images = ImageSet(mixed.paths or (), LABELS, boxes=boxes)
    expected, others = epochs_of(images), epochs_of(mixed)
    for cache in CACHES:
        check_equal(epochs_of(images, cache=cache), expected)
    assert others[0][0].std() > 0
    with pytest.raises(AssertionError):
        check_equal(others, expected)


@pytest.mark.slow
def test_ways_to_resize_do_not_mix(mixed: ImageSet, home: Path) -> None:
    modes: list[dict[str, Any]] = [
        {"resize_mode": mode, "resize": 20} for mode in RESIZE_MODES
    ]
    expected = [epochs_of(mixed, 1, **mode) for mode in modes]
    for _ in range(2):
        for mode, batches in zip(modes, expected, strict=True):
            check_equal(epochs_of(mixed, 1, cache="disk", **mode), batches)
    assert len(list(home.glob("*.pixels"))) == len(modes)
