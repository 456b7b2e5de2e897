"""Forks of this process: what each does, and how it ends."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def forked(work: Callable[..., Any], *arguments: Any) -> int:
    """Does something in a fork; returns the fork's process id."""
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
