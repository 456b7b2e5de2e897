"""Batches of classes, with a surrogate label for every image."""

import numpy as np
import pytest

from keras_dml.data import ClassBalanced, SurrogateSampler, pipeline
from tests.conftest import blobs

LABELS = np.repeat(np.arange(6), 8)
SURROGATES = np.arange(48) * 5 % 7


def sampler_of(**kwargs) -> SurrogateSampler:
    return SurrogateSampler(LABELS, 3, images_per_class=4, **kwargs)


def test_batches_are_class_balanced_and_have_surrogates() -> None:
    sampler = sampler_of(seed=2)
    sampler.set_assignments(SURROGATES)
    plain = ClassBalanced(LABELS, 3, images_per_class=4, seed=2)
    for epoch in (0, 3):
        rows = sampler.plan(epoch)
        np.testing.assert_array_equal(rows, plain.plan(epoch))
        given = sampler.targets(epoch)["surrogate"]
        np.testing.assert_array_equal(given, SURROGATES[rows])


def test_a_pipeline_gives_each_image_its_surrogate() -> None:
    sampler = sampler_of()
    sampler.set_assignments(SURROGATES)
    batches = list(pipeline(blobs(), sampler, size=16, channels=1))
    assert len(batches) == 4
    for _, y in batches:
        expected = SURROGATES[y["index"].numpy()]
        np.testing.assert_array_equal(y["surrogate"], expected)


def test_the_state_has_the_surrogates() -> None:
    sampler, again = sampler_of(), sampler_of()
    again.set_state(sampler.get_state())
    assert again.assignments is None
    sampler.set_assignments(SURROGATES)
    again.set_state(sampler.get_state())
    np.testing.assert_array_equal(again.assignments, SURROGATES)


def test_without_surrogates() -> None:
    with pytest.raises(ValueError, match=r"SurrogateLabels\(images, sampler\)"):
        sampler_of().targets(0)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (SURROGATES[1:], "one integer per image"),
        (SURROGATES / 2, "one integer per image"),
        (SURROGATES - 1, "at least 0. Received: -1"),
    ],
)
def test_bad_surrogates(assignments, message) -> None:
    with pytest.raises(ValueError, match=message):
        sampler_of().set_assignments(assignments)
