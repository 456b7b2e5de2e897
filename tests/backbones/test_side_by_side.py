"""Several backbones as one: their features, and no connection between them."""

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.backbones.splitting import side_by_side
from keras_dml.utils.models import copy_model
from tests.backbones.test_any_model import IDS, words

X = np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 1)).astype("float32")


def networks(count: int = 2) -> list[keras.Model]:
    whole = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    return [
        copy_model(whole, name=f"network_{k}", same_weights=False)
        for k in range(count)
    ]


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_features_are_those_of_each(pooling) -> None:
    models = networks()
    joined = side_by_side(models, "both", pooling)
    assert joined.name == "both"
    maps = [model(X).numpy() for model in models]
    if pooling is not None:
        pool = getattr(np, {"avg": "mean", "max": "max"}[pooling])
        maps = [pool(x, axis=(1, 2)) for x in maps]
    np.testing.assert_allclose(
        joined(X), np.concatenate(maps, axis=-1), rtol=1e-5
    )


def test_weights_are_shared_with_the_models_or_new() -> None:
    first, second = networks()
    joined = side_by_side([first, second], "both", "gem")
    assert {id(v) for v in first.weights} <= {id(v) for v in joined.weights}
    names = [v.path for v in joined.weights if v.name == "p"]
    assert len(names) == 2 and names[0] != names[1]
    kernels = [x.get_layer("conv_0").get_weights()[0] for x in (first, second)]
    assert not np.allclose(*kernels)


def test_tokens_keep_their_masks() -> None:
    """Sequential models, whose padding no pooling sees."""
    whole = words()
    models = [copy_model(whole, name=f"words_{k}") for k in range(2)]
    joined = side_by_side(models, "both", "avg")
    longer = np.concatenate([IDS, np.zeros_like(IDS)], axis=1)
    np.testing.assert_allclose(joined(longer), joined(IDS), atol=1e-6)
