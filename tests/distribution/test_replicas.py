"""R replicas of one machine compute what one does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keras_dml import losses, methods

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 900
FAMILIES = ("losses", "miners", "labels", "options", "methods")

# In float64 there is nothing but rounding, in the worst conditioned case too.
LIMITS = {"float32": (1e-6, 2e-5), "float64": (1e-10, 1e-9)}


def run(module: str, *arguments: str) -> str:
    """What a process prints that has logical devices of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.distribution.{module}", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check_equal(precision: str, *arguments: str) -> set[tuple[str, str]]:
    """Checks all rows of the table, and says which there are."""
    module = {"float32": "equality", "float64": "float64"}[precision]
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in run(module, *arguments).splitlines()
    ]
    loss, update = LIMITS[precision]
    for row in rows:
        assert row["loss"] <= loss, row
        assert row["update"] <= update, row
        assert row["same_integers"], row
    return {(row["family"], row["name"]) for row in rows}


def test_losses_and_updates_are_those_of_one() -> None:
    """In float64, which leaves no doubt; eagerly, which is faster."""
    names = check_equal("float64", "2", "--eager", *FAMILIES)
    for family, members in {
        "losses": losses.LOSSES,
        "methods": methods.METHODS,
        "miners": [f"triplet, {x}" for x in losses.mining.MINING],
    }.items():
        assert names >= {(family, name) for name in members}


def test_losses_and_updates_of_four_replicas() -> None:
    """As users train; by hand with all cases: see docs/distributed.md."""
    assert check_equal("float32", "4", "options")


def test_every_way_in_and_what_keras_alone_still_cannot() -> None:
    """Once it can, what goes round it here and in the docs may go."""
    found = json.loads(run("one_machine"))
    assert all(found.values()), found
