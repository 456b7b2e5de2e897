"""Settings and small things that many tests need."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from collections.abc import Iterator

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.data import ImageSet


@pytest.fixture(autouse=True)
def _fresh_keras() -> Iterator[None]:
    """The same seed for every test, and no policy left behind by one."""
    keras.utils.set_random_seed(0)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.fixture(autouse=True, scope="module")
def _graphs_of_a_module() -> Iterator[None]:
    """Frees the graphs of a module's models when it is done."""
    yield
    keras.utils.clear_session(free_memory=False)
    gc.collect()


@pytest.fixture
def tiny_backbone() -> keras.Model:
    """(B, 16, 16, 1) → (B, 8, 8, 8)."""
    return backbones.small_convnet((16, 16, 1), filters=(4, 8))


def blobs(classes: int = 6, images: int = 8, seed: int = 0) -> ImageSet:
    """Noisy 16×16 images whose classes are blobs in different places."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    centres = rng.uniform(3, 13, (classes, 2))[labels]
    grid = np.stack(np.meshgrid(np.arange(16), np.arange(16)), axis=-1)
    distance = np.square(grid - centres[:, None, None]).sum(-1)
    noise = rng.normal(0, 20, distance.shape)
    pixels = 200 * np.exp(-distance / 8) + noise
    return ImageSet(pixels.clip(0, 255).astype("uint8"), labels)


@pytest.fixture
def images() -> ImageSet:
    """Six classes of eight 16×16 images."""
    return blobs()
