"""Trainings of methods that keep a state go on with the same bits.

For all methods, `methods/test_contract.py` checks that a training is decided
by the variables that a state holds, and `kills.py` kills them. Replicas
go on in `distribution/test_one_machine.py`.
"""

import keras
import pytest

from tests.resuming.trainings import METHODS, goes_on


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("baseline", "mixed_float16"),  # A learned weight, a scaled loss.
        ("diva", "float32"),  # A queue, a momentum network, two views.
        ("divide_and_conquer", "float32"),  # Clusters, learners in turn.
        ("ensemble", "float32"),  # Samples of its own for each learner.
        ("mic", "float32"),  # Surrogate labels.
    ],
)
def test_training_resumes_within_an_epoch(
    name: str, precision: str, tmp_path
) -> None:
    keras.config.set_dtype_policy(precision)
    compared, changed = goes_on(name, tmp_path)
    assert changed == []
    assert compared > 30


@pytest.mark.slow
def test_resumed_training_draws_the_same_classes(monkeypatch, tmp_path) -> None:
    """Classes are drawn by a generator; optimizer slots are kept by row."""
    loss = {"name": "arc_face", "num_classes": 40, "class_share": 0.4}
    sampled = {"embedding_dim": 6, "loss": loss, "accumulate": 2}
    monkeypatch.setitem(METHODS, "baseline", sampled)
    assert goes_on("baseline", tmp_path)[1] == []
