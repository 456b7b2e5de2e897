"""Tests that pixels which are kept are those that would be made again."""

from typing import Any

import numpy as np
import pytest

from keras_dml.data import ImageSet
from tests.data.cached import CACHES, LABELS, check_equal, epochs_of

pytestmark = pytest.mark.usefixtures("home")


def slow(name: str, **options: Any) -> Any:
    return pytest.param(name, options, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixed", {"flip": True}),
        slow("alike", flip=True),
        # So large that no file is decoded at a smaller scale.
        slow("mixed", crop="random_resized", num_views=2, size=(16, 31)),
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
    expected, others = epochs_of(images, 1), epochs_of(mixed, 1, cache="disk")
    check_equal(epochs_of(images, 1, cache="disk"), expected)
    with pytest.raises(AssertionError):
        check_equal(others, expected)
