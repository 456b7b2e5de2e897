"""R replicas of one machine compute what one does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distribution.equality import SOME

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 900


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


def test_losses_and_updates_are_those_of_one() -> None:
    """In float64, which leaves no doubt; eagerly, which is faster."""
    families = ("losses", "miners", "labels", "methods")
    lines = run("float64", "2", *families, "--eager", "--some").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for row in rows:
        # There is but rounding, in the worst conditioned case too.
        assert row["loss"] <= 1e-10, row
        assert row["update"] <= 1e-9, row
        assert row["same_integers"], row
    assert {row["name"] for row in rows} == set(SOME)


def test_every_way_in() -> None:
    run("one_machine")
