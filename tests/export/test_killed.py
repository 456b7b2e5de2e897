"""Exports that are killed leave whole versions behind, and nothing else.

A child process exports a version beside an old one, and then the next. It
is killed at moments that it chooses, by the events that Python's audit hooks
see, and at any moment. Whatever a server would take for a version must be a
whole export then, and the old one must be as it was.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_dml.export import export_model
from keras_dml.export.versions import version_folder
from tests.export.serving import (
    assert_same,
    contents,
    file_of,
    make_model,
    predict,
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
def whole_run(exported: Path, tmp_path_factory: Any) -> dict[str, Any]:
    """A run that nobody kills, with a copy of the folder at each event."""
    root = tmp_path_factory.mktemp("run")
    folder, snapshots = root / "glyphs", root / "snapshots"
    shutil.copytree(exported.parent, folder)
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


def test_folder_is_whole_at_every_event(
    exported: Path, whole_run: dict[str, Any]
) -> None:
    folder, snapshots = whole_run["folder"], whole_run["snapshots"]
    assert sorted(x.name for x in folder.iterdir()) == ["1", "2", "3"]
    final = {x.name: contents(x) for x in versions(folder)}
    assert final["1"] == contents(exported)
    seen = set()
    for number in range(1, whole_run["events"] + 1):
        found = {x.name: contents(x) for x in versions(snapshots / str(number))}
        for name, content in found.items():
            assert content == final[name], (number, name)
        seen.add("".join(sorted(found)))
    # There was something to see: before, between, and after.
    assert seen == {"1", "12", "123"}


def assert_whole(folder: Path, exported: Path) -> None:
    """The old version is as it was, and others serve the new model."""
    keras.utils.set_random_seed(1)
    expected = predict(make_model(), IMAGES)
    for version in versions(folder):
        if version.name == "1":
            assert contents(version) == contents(exported)
        else:
            served = serve(version, [file_of(x) for x in IMAGES])["embedding"]
            assert_same(served, expected)


def test_killed_at_an_event(
    exported: Path, whole_run: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "glyphs"
    shutil.copytree(exported.parent, folder)
    process, _ = start(folder, die_at=int(0.45 * whole_run["events"]))
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert folder / "1" in versions(folder)
    assert_whole(folder, exported)
    # And it can be gone on with.
    assert version_folder(folder) == folder / str(len(versions(folder)) + 1)


def test_killed_at_any_moment(
    exported: Path, whole_run: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "glyphs"
    shutil.copytree(exported.parent, folder)
    process, _ = start(folder)
    time.sleep(0.6 * whole_run["seconds"])
    process.kill()
    process.join()
    assert folder / "1" in versions(folder)
    assert_whole(folder, exported)
