"""Tests that pixels which are kept are those that would be made again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_dml.data import ImageSet
from keras_dml.data.resizing import RESIZE_MODES
from tests.data.cached import CACHES, LABELS, check_equal, epochs_of

pytestmark = pytest.mark.usefixtures("home")


def slow(name: str, **options: Any) -> Any:
    return pytest.param(name, options, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixed", {"flip": True}),
        ("alike", {"flip": True}),
        slow("mixed", crop="random_resized", num_views=2, size=(12, 16)),
        slow("mixed", resize_mode="longest", resize=20, flip=True, channels=1),
        slow("alike", resize_mode="squash", resize=20, crop="random_resized"),
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
