"""Seconds until the package is imported and its command answers.

Run from the root of the project:

    python tests/benchmarks/start.py
    python tests/benchmarks/start.py --repeat 3 --only refusal help
    python tests/benchmarks/start.py --trees . ../other  # another checkout

Each is measured in processes of its own, in turn, and printed as the median
and the range of wall time and of user time. "import" is what `import keras_dml`
takes after `import keras, tensorflow`; "train" and "serve" end with the first
line and the first answer of `/healthz`. Modules are compiled before, as
installed ones are: without a cache of bytecode, the import takes three times
as long.
"""

import argparse
import contextlib
import http.client
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Seconds: TypeAlias = tuple[float, float]
"""Wall time and user time."""

IMPORT = """
import os, time, keras, tensorflow
began, before = time.perf_counter(), os.times()
import keras_dml
print(time.perf_counter() - began, os.times().user - before.user)
"""
COMMAND = (
    "import sys; sys.argv[0] = 'keras-dml'; from keras_dml.cli import main; "
    "main()"
)


def imported() -> Seconds:
    command = [sys.executable, "-P", "-c", IMPORT]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    wall, user = map(float, ended.stdout.split())
    return wall, user


def until(
    *words: str, seen: Callable[[subprocess.Popen[bytes]], object]
) -> Seconds:
    """Seconds until something is seen of a command, which is then killed."""
    began, before = time.perf_counter(), _user()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        seen(process)
        wall = time.perf_counter() - began
        process.kill()
    return wall, _user() - before


def _user() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def ended(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def first_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None and process.stdout.readline()


def served() -> Seconds:
    """Until the first answer; of a server that gives none, until it ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def answered(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            with contextlib.suppress(OSError), contextlib.closing(connection):
                connection.request("GET", "/healthz")
                connection.getresponse()
                return
            time.sleep(0.01)

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.keras")
        model.touch()
        return until("serve", str(model), "--port", str(port), seen=answered)


WRONG = ("train", "glyphs/baseline", "--set", "wrongkey=3")
MEASURED: dict[str, Callable[[], Seconds]] = {
    "import": imported,
    "help": lambda: until("train", "--help", seen=ended),
    "recipes": lambda: until("recipes", seen=ended),
    "refusal": lambda: until(*WRONG, seen=ended),
    "train": lambda: until("train", "quickstart", seen=first_line),
    "serve": served,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=[*MEASURED])
    parser.add_argument("--trees", nargs="+", default=["."])
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[tuple[str, str], list[Seconds]] = {}
    for turn in range(options.repeat + 1):
        for name in options.only:
            for tree in options.trees:
                os.environ["PYTHONPATH"] = os.path.abspath(tree)
                measured = MEASURED[name]()
                if turn:  # The first one compiles.
                    times.setdefault((name, tree), []).append(measured)
    for (name, tree), values in times.items():
        wall, user = zip(*values, strict=True)
        print(f"{name:8} {tree}", _shown("wall", wall), _shown("user", user))


def _shown(kind: str, seconds: tuple[float, ...]) -> str:
    middle = statistics.median(seconds)
    return f"{kind} {middle:5.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
