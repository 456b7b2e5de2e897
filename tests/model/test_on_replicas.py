"""What users do with a model on two replicas, in a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.replicas
def test_two_replicas_compute_what_one_does() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.model.on_replicas"],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr[-3000:]
