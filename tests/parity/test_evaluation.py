"""Metrics against pytorch-metric-learning, where it is installed."""

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.evaluation.clustering import ami, nmi
from keras_dml.search import Index

pytest.importorskip("pytorch_metric_learning")
pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def calculator():
    # Its import warns about modules of its own.
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pytorch_metric_learning.utils.accuracy_calculator import (
            AccuracyCalculator,
        )
    return AccuracyCalculator


def data(spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 40, 600)
    x = rng.standard_normal((40, 16))[labels]
    x += spread * rng.standard_normal(x.shape)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype(np.float32), labels


NAMES = {
    "precision@1": "precision_at_1",
    "r_precision": "r_precision",
    "map@r": "mean_average_precision_at_r",
    "map": "mean_average_precision",
    "mrr": "mean_reciprocal_rank",
}


def peer(calculator, k, queries, labels, gallery=None, gallery_labels=None):
    import torch

    arrays = [queries, labels]
    if gallery is not None:
        arrays += [gallery, gallery_labels]
    tensors = [torch.from_numpy(array) for array in arrays]
    return calculator(
        include=tuple(NAMES.values()), k=k, device=torch.device("cpu")
    ).get_accuracy(*tensors)


@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_metrics_of_one_set_match_pml(calculator, spread):
    x, labels = data(spread)
    expected = peer(calculator, 599, x, labels)
    results = evaluate_embeddings(
        x, labels, metrics=tuple(NAMES), distance="euclidean"
    )
    for ours, theirs in NAMES.items():
        assert results[ours] == pytest.approx(expected[theirs], abs=1e-6), ours


def test_metrics_of_a_gallery_match_pml(calculator):
    x, labels = data()
    split = x[:200], labels[:200], x[200:], labels[200:]
    expected = peer(calculator, 400, *split)
    results = evaluate_embeddings(
        *split[:2],
        gallery=split[2],
        gallery_labels=split[3],
        metrics=tuple(NAMES),
    )
    for ours, theirs in NAMES.items():
        assert results[ours] == pytest.approx(expected[theirs], abs=1e-6), ours


def test_nmi_and_ami_match_pml(calculator):
    rng = np.random.default_rng(1)
    labels, clusters = rng.integers(0, 9, 300), rng.integers(0, 12, 300)
    import torch

    # By default it asks for a GPU, of which PyTorch may warn.
    cpu = torch.device("cpu")
    peers = calculator(include=("NMI", "AMI"), device=cpu)
    assert nmi(labels, clusters) == pytest.approx(
        peers.calculate_NMI(labels, clusters)
    )
    assert ami(labels, clusters) == pytest.approx(
        peers.calculate_AMI(labels, clusters)
    )


def test_approximate_index_works_beside_pml(calculator) -> None:
    # It imports faiss.contrib.torch_utils, which changes faiss's classes.
    x, labels = data()
    index = Index(x, {"label": labels}, factory="IVF8,Flat")
    hits = index.search(x[:50], 5, where={"label": 3}, exclude=index.ids[:50])
    assert (labels[hits.ids] == 3).all()
