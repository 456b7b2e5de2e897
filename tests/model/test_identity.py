"""Which model made an index; see also tests/search/test_images.py."""

import pytest

from keras_dml import backbones, methods
from keras_dml.losses import MarginLoss
from keras_dml.model.identity import ModelIdentity


def test_training_the_objective_leaves_the_identity() -> None:
    loss = MarginLoss(learn_beta=True)
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = methods.baseline(backbone, embedding_dim=6, loss=loss)
    identity = ModelIdentity.of(model)
    weights = model.objective.weights
    assert weights
    weights[0].assign(weights[0] + 1)
    identity.check(model)
    model.head.weights[0].assign(model.head.weights[0] * 1.001)
    with pytest.raises(ValueError, match="different weights"):
        identity.check(model)
