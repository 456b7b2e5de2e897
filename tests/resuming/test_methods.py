"""Trainings of every method go on with the same bits."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_dml import methods
from keras_dml.callbacks import Resume
from tests.resuming.trainings import (
    METHODS,
    Copy,
    bits,
    different,
    rows,
    train,
)


def test_every_method_is_resumed() -> None:
    assert set(METHODS) == set(methods.METHODS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "float32") for name in METHODS),
        *((name, "mixed_float16") for name in ("baseline", "bier", "dcml")),
    ],
)
def test_goes_on_within_an_epoch(name: str, precision: str, tmp_path) -> None:
    keras.config.set_dtype_policy(precision)
    folder, killed = tmp_path / "whole", tmp_path / "killed"
    folder.mkdir()
    copy = Copy(folder, killed, epoch=1, step=1)
    whole = train(name, folder, copy, Resume(folder / "state", every=1))
    resumed = train(name, killed, Resume(killed / "state"))
    assert different(bits(whole), bits(resumed)) == []
    assert rows(folder) == rows(killed)
    assert len(rows(folder)) == 2


@pytest.mark.slow
def test_goes_on_with_the_same_classes(monkeypatch, tmp_path) -> None:
    """Drawn by a generator, with what the optimizer keeps of every row."""
    loss = {"name": "arc_face", "num_classes": 40, "class_share": 0.4}
    sampled = {"embedding_dim": 6, "loss": loss, "accumulate": 2}
    monkeypatch.setitem(METHODS, "baseline", sampled)
    folder, killed = tmp_path / "whole", tmp_path / "killed"
    folder.mkdir()
    copy = Copy(folder, killed, epoch=1, step=1)
    whole = train("baseline", folder, copy, Resume(folder / "state", every=1))
    resumed = train("baseline", killed, Resume(killed / "state"))
    assert different(bits(whole), bits(resumed)) == []


@pytest.mark.slow
def test_two_replicas_go_on(tmp_path) -> None:
    command = [sys.executable, "-m", "tests.resuming.replicas", tmp_path]
    done = subprocess.run(
        [*command, "baseline"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["baseline [] True"], done.stderr
