import numpy as np
import pytest

from keras_dml.data import ImageSet, View
from keras_dml.visualization import ensembles as dcml_analysis
from tests.data.small_images import LABELS, noise
from tests.methods.test_dcml import model_of


def sub_embeddings_of(model, images) -> np.ndarray:
    pixels = images.images[..., None].astype("f4")
    return model.outputs_of(pixels)["sub_embeddings"].numpy()


def test_mean_weights_are_those_of_all_images(tiny_backbone, images) -> None:
    model = model_of(tiny_backbone)
    y = sub_embeddings_of(model, images)
    expected = np.abs(model.objective.compositor(y)[1]).mean(0)
    weights = dcml_analysis.mean_weights(model, images, batch_size=7)
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)


def test_part_distance_is_between_unit_sub_embeddings(
    tiny_backbone, images
) -> None:
    model = model_of(tiny_backbone)
    distances = []
    for y in sub_embeddings_of(model, images):
        unit = y / np.linalg.norm(y, axis=1, keepdims=True)
        distances += [
            np.sqrt(2 - 2 * unit[p] @ unit[q])
            for p, q in ((0, 1), (0, 2), (1, 2))
        ]
    value = dcml_analysis.part_distance(model, images, batch_size=7)
    assert value == pytest.approx(np.mean(distances), abs=1e-4)


def test_part_distance_knows_its_extremes(tiny_backbone, images) -> None:
    model = model_of(tiny_backbone, num_learners=2)
    kernel, bias = model.head.dense.weights
    half = np.array(kernel)[:, :6]
    bias.assign(np.zeros(12))
    kernel.assign(np.concatenate([half, 3 * half], 1))
    assert dcml_analysis.part_distance(model, images) == pytest.approx(
        0, abs=1e-3
    )
    kernel.assign(np.concatenate([half, -half], 1))
    assert dcml_analysis.part_distance(model, images) == pytest.approx(2)


def test_refuses_models_without_what_is_analyzed(tiny_backbone, images) -> None:
    model = model_of(tiny_backbone, num_learners=1, num_compositors=0)
    with pytest.raises(ValueError, match="must have compositors"):
        dcml_analysis.mean_weights(model, images)
    with pytest.raises(ValueError, match="at least two learners"):
        dcml_analysis.part_distance(model, images)


def test_images_are_seen_as_in_evaluation(tiny_backbone) -> None:
    wide = ImageSet(noise(14, 40), LABELS)
    model = model_of(tiny_backbone, view=View((16, 16), 1, 20, "squash"))
    squashed = View((16, 16), 1, 20, "squash").apply(wide.images)
    y = model.outputs_of(squashed)["sub_embeddings"].numpy()
    units = y / np.linalg.norm(y, axis=-1, keepdims=True)
    pairs = ((0, 1), (0, 2), (1, 2))
    expected = np.mean(
        [np.linalg.norm(units[:, p] - units[:, q], axis=1) for p, q in pairs]
    )
    value = dcml_analysis.part_distance(model, wide, batch_size=7)
    assert value == pytest.approx(expected, abs=1e-5)
