"""Settings and small things that many tests need.

Fixtures import what takes long: with `-n` this file is also read by a process
that only hands out tests, and the others wait for it.
"""

import gc
import importlib.util
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Tests ask whether a step compiles and agrees, not whether it is fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# One thread: there is a process a core, and sums have one order.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    import keras

    from keras_dml.data import ImageSet
    from tests.runs.small_run import Commanded

_MARKS = {
    "cli": "runs",
    "distribution": "replicas",
    "resuming": "runs",
    "runs": "runs",
    "serve": "server",
}
"""Marks of the slow tests of a folder."""

graph_and_xla = pytest.mark.parametrize(
    "jit",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["graph", "xla"],
)


needs_jax = [
    pytest.mark.slow,
    pytest.mark.peers,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None, reason="needs jax"
    ),
]
"""Marks of modules whose tests run JAX, in processes of its own."""


def quick(fast: Iterable[str], every: Iterable[str]) -> list[Any]:
    """Parameters of a test; all but the quick ones are marked slow."""
    return [
        pytest.param(x, marks=() if x in fast else pytest.mark.slow)
        for x in every
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks slow tests that run when their room has changed.

    With `--dist loadgroup`, the tests of a file run in one process, as they
    share what is slow to make; pages of the docs share nothing.
    """
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here)
        if path.parts[0] in _MARKS and item.get_closest_marker("slow"):
            item.add_marker(_MARKS[path.parts[0]])
        if not item.get_closest_marker("pages"):
            item.add_marker(pytest.mark.xdist_group(path.as_posix()))


def pytest_configure() -> None:
    """Properties are tried with the same examples on all machines.

    How fast these are made says more of the machine than of a test.
    """
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "any machine",
        suppress_health_check=[HealthCheck.too_slow],
        deadline=None,
        derandomize=True,
        max_examples=50,
    )
    settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """What is imported stays: collections need not look at it again.

    Nor need they be frequent, as there is one after each module.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


@pytest.fixture(autouse=True, scope="session")
def _graphs_as_they_are() -> None:
    """Graph optimization takes longer than the few runs of a test."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    tf.random.set_seed(0)


@pytest.fixture(autouse=True)
def _fresh_keras(request: pytest.FixtureRequest) -> Iterator[None]:
    """Resets seed and dtype policy for every test."""
    import keras
    import tensorflow as tf

    # That of TensorFlow is set once: it empties the cache of kernels, after
    # which a test takes a tenth of a second more. Keras draws by its own.
    with mock.patch.object(tf.random, "set_seed"):
        keras.utils.set_random_seed(0)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)
    # What slow tests build is large, and some modules have a hundred of them.
    if request.node.get_closest_marker("slow"):
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _graphs_of_a_module() -> Iterator[None]:
    """Frees the graphs of a module's models when it is done.

    Kernels stay: those of a graph go with it, and the others serve again.
    """
    import keras
    from tensorflow.python.eager import context

    yield
    with mock.patch.object(context.context(), "clear_kernel_cache"):
        keras.utils.clear_session(free_memory=False)
    gc.collect()
    gc.freeze()  # What is left stays, too.


@pytest.fixture
def tiny_backbone() -> "keras.Model":
    """(B, 16, 16, 1) → (B, 8, 8, 8)."""
    from keras_dml import backbones

    return backbones.small_convnet((16, 16, 1), filters=(4, 8))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """A folder that all processes of the session share."""
    folder: Path = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def run_of(shared_folder) -> Callable[[str], Path]:
    """Shared folders of small runs, by method; tests do not change them."""
    from tests.runs.small_run import train_once

    return partial(train_once, shared_folder / "runs")


@pytest.fixture(scope="session")
def commanded(tmp_path_factory) -> "Commanded":
    """A shared run of `keras-dml train`; tests do not change it."""
    from tests.runs.small_run import train_by_command

    return train_by_command(tmp_path_factory.mktemp("commanded"))


def blobs(classes: int = 6, images: int = 8, seed: int = 0) -> "ImageSet":
    """Noisy 16×16 images whose classes are blobs in different places."""
    import numpy as np

    from keras_dml.data import ImageSet

    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    centres = rng.uniform(3, 13, (classes, 2))[labels]
    grid = np.stack(np.meshgrid(np.arange(16), np.arange(16)), axis=-1)
    distance = np.square(grid - centres[:, None, None]).sum(-1)
    noise = rng.normal(0, 20, distance.shape)
    pixels = 200 * np.exp(-distance / 8) + noise
    return ImageSet(pixels.clip(0, 255).astype("uint8"), labels)


@pytest.fixture
def images() -> "ImageSet":
    """Six classes of eight 16×16 images."""
    return blobs()
