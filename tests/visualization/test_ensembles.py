import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.visualization import ensembles as dcml_analysis
from tests.methods.test_dcml import model_of


@pytest.fixture(scope="module")
def model():
    return model_of(backbones.small_convnet((16, 16, 1), filters=(4, 8)))


def sub_embeddings_of(model, images) -> np.ndarray:
    pixels = images.images[..., None].astype("f4")
    return model.outputs_of(pixels)["sub_embeddings"].numpy()


def test_mean_weights_average_all_images(model, images) -> None:
    y = sub_embeddings_of(model, images)
    expected = np.abs(model.objective.compositor(y)[1]).mean(0)
    weights = dcml_analysis.mean_weights(model, images, batch_size=7)
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)


def test_part_distance_compares_unit_sub_embeddings(model, images) -> None:
    distances = []
    for y in sub_embeddings_of(model, images):
        unit = y / np.linalg.norm(y, axis=1, keepdims=True)
        distances += [
            np.sqrt(2 - 2 * unit[p] @ unit[q])
            for p, q in ((0, 1), (0, 2), (1, 2))
        ]
    value = dcml_analysis.part_distance(model, images, batch_size=7)
    assert value == pytest.approx(np.mean(distances), abs=1e-4)


def test_models_without_compositors_or_learners_raise(
    tiny_backbone, images
) -> None:
    model = model_of(tiny_backbone, num_learners=1, num_compositors=0)
    with pytest.raises(ValueError, match="must have compositors"):
        dcml_analysis.mean_weights(model, images)
    with pytest.raises(ValueError, match="at least two learners"):
        dcml_analysis.part_distance(model, images)
