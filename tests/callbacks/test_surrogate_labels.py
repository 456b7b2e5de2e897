"""Surrogate labels: standardized by class, clustered, numbered as before."""

import numpy as np
import pytest

from keras_dml import methods
from keras_dml.callbacks import SurrogateLabels
from keras_dml.callbacks.surrogate_labels import standardize
from keras_dml.data import ClassBalanced, SurrogateSampler
from tests.conftest import blobs


def sampler_of(images, **kwargs) -> SurrogateSampler:
    return SurrogateSampler(images.labels, 2, 3, steps_per_epoch=2, **kwargs)


@pytest.mark.parametrize("by", ["mean_std", "mean"])
def test_points_are_standardized_class_by_class(by) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([7, 3, 5], [6, 4, 1])
    points = rng.normal(rng.normal(size=(11, 1)), 2.0, (11, 3))
    points[labels == 3, 1] = 0.3  # Constant within a class.
    expected = np.zeros_like(points)
    for label in (7, 3, 5):
        for d in range(3):
            x = points[labels == label, d]
            deviation = x.std() if by == "mean_std" else 1.0
            if x.std() > 1e-9:
                expected[labels == label, d] = (x - x.mean()) / deviation
    result = standardize(points, labels, by)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert result.dtype == np.float32


def test_clusters_follow_variation_within_classes() -> None:
    """Two poses in every class, apart by less than classes are."""
    rng = np.random.default_rng(1)
    classes, poses = np.repeat(np.arange(6), 8), np.arange(48) % 2
    points = 10 * rng.normal(size=(6, 4))[classes]
    points += 0.5 * poses[:, None] + rng.normal(0, 0.02, (48, 4))
    images = blobs()
    np.testing.assert_array_equal(images.labels, classes)
    sampler = sampler_of(images)
    callback = SurrogateLabels(images, sampler, 2)
    callback._outputs_of = lambda model: points
    callback.set_model(methods.mic("small_convnet", embedding_dim=4))
    callback.on_epoch_begin(0)
    assert sampler.assignments is not None
    agreement = np.mean(sampler.assignments == poses)
    assert agreement in (0.0, 1.0)


def test_labels_are_found_every_t_epochs(tiny_backbone, images) -> None:
    sampler = sampler_of(images)
    callback = SurrogateLabels(images, sampler, 3, every=2)
    callback.set_model(methods.mic(tiny_backbone, embedding_dim=4))
    for epoch in range(4):
        callback.on_epoch_begin(epoch)
        assert sampler.epoch == epoch
    assert [x.epoch for x in callback.divisions] == [0, 2]
    assert callback.divisions[1].kept == 1.0  # The model has not changed.
    again = SurrogateLabels(images, sampler_of(images), 3, every=2)
    again.set_state(callback.get_state())
    again.on_epoch_begin(3)  # Nothing is due.
    assert again.divisions == callback.divisions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "`every` of SurrogateLabels"),
        ({"num_surrogates": 0}, "`num_surrogates` of SurrogateLabels"),
        ({"num_surrogates": 49}, "48 images and 49 clusters"),
        ({"standardization": "std"}, "`standardization`.*'std'"),
        ({"sample": 2}, "`sample` of SurrogateLabels"),
    ],
)
def test_unfit_arguments_raise(arguments, message, images) -> None:
    with pytest.raises(ValueError, match=message):
        SurrogateLabels(
            images, sampler_of(images), **{"num_surrogates": 4, **arguments}
        )


def test_another_sampler_raises(images) -> None:
    with pytest.raises(ValueError, match="must be the SurrogateSampler"):
        SurrogateLabels(images, ClassBalanced(images.labels, 2))
