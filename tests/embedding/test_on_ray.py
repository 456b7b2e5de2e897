"""Shards written by Ray actors."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from keras_dml.embedding import embed, embed_shards
from tests.embedding.test_embed_shards import COUNT, examples, model

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.slow,
    # Ray warns of its own settings, and leaves files to the collector.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_killed_actor_costs_no_row(cluster, tmp_path, monkeypatch) -> None:
    """The task is repeated, and actors without a GPU see none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    marks = tmp_path / "marks"
    marks.mkdir()
    (kernel, bias) = (np.array(x) for x in model().get_weights())

    def engine(x: np.ndarray) -> np.ndarray:
        import tensorflow as tf

        hidden = os.environ["CUDA_VISIBLE_DEVICES"] in ("", "-1")
        assert hidden and os.environ["JAX_PLATFORMS"] == "cpu"
        assert not tf.config.list_physical_devices("GPU")
        (marks / str(x.sum())).touch()
        if len(list(marks.iterdir())) == 3 and not (marks / "killed").exists():
            (marks / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x.reshape(len(x), -1) / 255 @ kernel + bias

    shards = embed_shards(
        model(),
        examples(),
        tmp_path / "out",
        rows_per_shard=3,
        engine=engine,
        ray=True,
    )
    assert (marks / "killed").exists()
    assert ray.is_initialized()
    assert shards.columns["row"] == list(range(COUNT))
    np.testing.assert_array_equal(shards.labels, examples().labels)
    expected = embed(model(), examples())
    np.testing.assert_allclose(shards.array(), expected, atol=1e-6)
    names = {x.name for x in (tmp_path / "out").iterdir()}
    assert len(names) == shards.num_shards + 2  # The manifest and the lock.


def test_actors_embed_with_the_model(cluster, tmp_path) -> None:
    shards = embed_shards(model(), examples(), tmp_path, ray=True)
    expected = embed(model(), examples())
    np.testing.assert_allclose(shards.array(), expected, atol=1e-6)


def test_error_of_an_actor_is_raised(cluster, tmp_path) -> None:
    def diverged(x: np.ndarray) -> np.ndarray:
        return np.full((len(x), 3), np.nan, "float32")

    with pytest.raises(OSError, match="ValueError.*row 0, '0', has nan"):
        embed_shards(model(), examples(), tmp_path, engine=diverged, ray=True)


def test_missing_cluster_raises(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(OSError, match="cluster cannot be joined"):
        embed_shards(model(), examples(), tmp_path, ray="nowhere")
