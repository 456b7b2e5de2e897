"""Exports that are killed leave whole versions behind, and nothing else.

A child process exports a version beside an old one, and then the next. It
is killed at moments that it chooses, by the events that Python's audit hooks
see, and at any moment. Whatever a server would take for a version must be a
whole export then, and the old one must be as it was.
"""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml.export import export_model
from tests.export.serving import (
    contents,
    file_of,
    make_model,
    random_images,
    serve,
)

IMAGES = random_images(2, 16, 16, 1)

pytestmark = pytest.mark.slow

# A plain fork would copy the locks of TensorFlow's threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.export.serving"])


def export_twice(folder: Path, die_at: int, snapshots: Any, pipe: Any) -> None:
    """In the child: dies at an event of that number, if there is one.

    It sends the number of events, and copies the folder at each of them if
    there is a folder for that.
    """
    keras.utils.set_random_seed(1)
    model = make_model()
    events = 0
    copying = False

    def watch(event: str, arguments: Any) -> None:
        nonlocal events, copying
        if copying or ".export-" not in repr(arguments):
            return
        events += 1
        if events == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if snapshots:
            copying = True
            shutil.copytree(folder, snapshots / str(events))
            copying = False

    sys.addaudithook(watch)
    pipe.send("started")
    for path in (folder / "2", folder):
        export_model(model, path)
    pipe.send(events)


def start(folder: Path, die_at: int = 0, snapshots: Any = None) -> Any:
    receiving, sending = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=export_twice, args=(folder, die_at, snapshots, sending)
    )
    process.start()
    sending.close()
    assert receiving.recv() == "started"
    return process, receiving


def versions(folder: Path) -> list[Path]:
    """What a server takes for versions: `safe_strto64` reads the name."""
    return [x for x in folder.iterdir() if is_integer(x.name)]


def is_integer(name: str) -> bool:
    try:
        int(name)
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def old(tmp_path_factory: Any) -> Path:
    keras.utils.set_random_seed(0)
    return export_model(make_model(), tmp_path_factory.mktemp("old") / "1")


@pytest.fixture(scope="module")
def whole_run(old: Path, tmp_path_factory: Any) -> dict[str, Any]:
    """A run that nobody kills, with a copy of the folder at each event."""
    root = tmp_path_factory.mktemp("run")
    folder, snapshots = root / "glyphs", root / "snapshots"
    shutil.copytree(old.parent, folder)
    snapshots.mkdir()
    began = time.perf_counter()
    process, pipe = start(folder, snapshots=snapshots)
    events = pipe.recv()
    process.join()
    assert process.exitcode == 0
    return {
        "folder": folder,
        "snapshots": snapshots,
        "events": events,
        "seconds": time.perf_counter() - began,
    }


def embeddings(version: Path) -> Any:
    return serve(version, [file_of(x) for x in IMAGES])["embedding"]


@pytest.fixture(scope="module")
def allowed(old: Path, whole_run: dict[str, Any]) -> list[Any]:
    """Embeddings of the old model and of the new one."""
    both = [embeddings(old), embeddings(whole_run["folder"] / "2")]
    assert np.abs(both[0] - both[1]).max() > 0.01
    return both


def test_folder_is_whole_at_every_event(
    old: Path, whole_run: dict[str, Any]
) -> None:
    folder, snapshots = whole_run["folder"], whole_run["snapshots"]
    assert sorted(x.name for x in folder.iterdir()) == ["1", "2", "3"]
    final = {x.name: contents(x) for x in versions(folder)}
    assert final["1"] == contents(old)
    seen = set()
    for number in range(1, whole_run["events"] + 1):
        found = {x.name: contents(x) for x in versions(snapshots / str(number))}
        for name, content in found.items():
            assert content == final[name], (number, name)
        seen.add("".join(sorted(found)))
    # There was something to see: before, between, and after.
    assert seen == {"1", "12", "123"}


def assert_loadable(folder: Path, allowed: list[Any]) -> None:
    assert folder / "1" in versions(folder)
    for version in versions(folder):
        given = embeddings(version)
        assert any(np.allclose(given, x, atol=1e-5) for x in allowed), version


@pytest.mark.parametrize("part", [0.15, 0.45, 0.9])
def test_killed_at_an_event(
    part: float,
    old: Path,
    whole_run: dict[str, Any],
    allowed: list[Any],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "glyphs"
    shutil.copytree(old.parent, folder)
    process, _ = start(folder, die_at=int(part * whole_run["events"]))
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert_loadable(folder, allowed)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_moment(
    seed: int,
    old: Path,
    whole_run: dict[str, Any],
    allowed: list[Any],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "glyphs"
    shutil.copytree(old.parent, folder)
    process, _ = start(folder)
    time.sleep(random.Random(seed).uniform(0, whole_run["seconds"]))
    process.kill()
    process.join()
    assert_loadable(folder, allowed)
    # And it can be gone on with.
    path = export_model(make_model(), folder)
    assert path.name == str(len(versions(folder)))
