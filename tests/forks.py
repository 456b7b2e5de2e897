"""Starts other processes and waits for them."""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def forked(work: Callable[..., Any], *arguments: Any) -> int:
    """Runs a function in a fork; returns its process id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        work(*arguments)
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exit_status(process: int) -> int:
    """The exit status of a fork that has ended, −9 if it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def run_on(
    backend: str, *arguments: str, cwd: Path = ROOT, devices: int | None = None
) -> None:
    """Runs Python with a Keras backend; fails with its last output."""
    environment = {
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    if devices is not None:
        flag = f"--xla_force_host_platform_device_count={devices}"
        environment["XLA_FLAGS"] = flag
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
