"""Atomic writes and locks."""

import errno
import multiprocessing
import os
import platform
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keras_dml.utils.files import (
    atomic_file,
    differences,
    file_lock,
    format_changes,
    one_at_a_time,
    read_regular,
    sweep,
    write_atomically,
)

FORK = multiprocessing.get_context("fork")
"""The children here use nothing of TensorFlow, so they need no new start."""

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def child(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=work)
    process.start()
    return process


def test_write_creates_the_folder_and_a_complete_file(tmp_path) -> None:
    file = tmp_path / "new" / "file.npz"
    write_atomically(file, "é\n")
    assert file.read_bytes() == "é\n".encode()
    write_atomically(str(file), b"\0")
    assert file.read_bytes() == b"\0"
    with atomic_file(file) as partial:
        # NumPy adds the suffix where it is not there.
        assert partial.name.startswith(".file.npz.")
        np.savez(partial, x=np.arange(3))
    with np.load(file) as content:
        assert content["x"].tolist() == [0, 1, 2]
    (file.parent / "plain").touch()
    modes = {path.stat().st_mode for path in file.parent.iterdir()}
    assert len(modes) == 1 and len(list(file.parent.iterdir())) == 2


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_write_leaves_only_the_old_file(error, tmp_path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "first")
    with pytest.raises(type(error)):
        with atomic_file(file) as partial:
            partial.write_text("half of the sec")
            assert file.read_text() == "first"
            raise error
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


def test_killed_writer_leaves_the_old_file(tmp_path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "first")

    def die() -> None:
        with atomic_file(file) as partial:
            partial.write_text("half of the sec")
            os.kill(os.getpid(), signal.SIGKILL)

    process = child(die)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert file.read_text() == "first"


def test_sweep_removes_files_of_killed_writers(tmp_path) -> None:
    kept = [".lock", ".hidden.keras", ".a.0123456789abcdeg.keras", "a.keras"]
    left = [f".last.keras.{'0a' * 8}.keras", f".lock.{'f' * 16}"]
    left += [f"state/.state-1.npz.{'1' * 16}.npz"]
    (tmp_path / "state").mkdir()
    for name in (*kept, *left):
        (tmp_path / name).touch()
    with atomic_file(tmp_path / "new.csv") as partial:
        partial.touch()
        sweep(tmp_path)
        assert not partial.exists()
        partial.touch()
    names = {x.name for x in tmp_path.rglob("*") if x.is_file()}
    assert names == {*kept, "new.csv"}


def test_link_is_replaced_but_not_its_target(tmp_path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("somebody's")
    link.symlink_to(target)
    write_atomically(link, "ours")
    assert target.read_text() == "somebody's"
    assert not link.is_symlink()
    assert link.read_text() == "ours"


def test_devices_and_pipes_are_written_directly(tmp_path) -> None:
    """As root, replacing /dev/null would break the machine."""
    write_atomically("/dev/null", "nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    assert list(tmp_path.iterdir()) == [pipe]


def test_only_regular_files_up_to_a_size_are_read(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    for path in ("/dev/zero", "pipe", "folder"):
        with pytest.raises(OSError, match="it is a .*, not a file") as error:
            read_regular(path, 10)
        assert error.value.filename == path
    Path("file").write_bytes(b"x" * 10)
    assert read_regular("file", 10) == b"x" * 10
    with pytest.raises(ValueError, match="more than 9 bytes"):
        read_regular("file", 9)


def test_concurrent_writers_never_show_a_partial_file(tmp_path) -> None:
    file = tmp_path / "file"
    contents = [letter * 100_000 for letter in "abcd"]
    write_atomically(file, contents[0])

    def write(content: str) -> None:
        for _ in range(20):
            write_atomically(file, content)

    threads = [threading.Thread(target=write, args=(x,)) for x in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert file.read_text() in contents
    assert list(tmp_path.iterdir()) == [file]


def is_locked(path: Path) -> bool:
    try:
        with file_lock(path, wait=False):
            return False
    except BlockingIOError:
        return True


def test_lock_holds_until_its_block_ends_or_fails(tmp_path) -> None:
    lock = tmp_path / ".lock"
    with file_lock(lock):
        assert is_locked(lock)
    with pytest.raises(RuntimeError):
        with file_lock(lock, wait=False):
            raise RuntimeError
    assert not is_locked(lock)


def test_killed_process_releases_its_lock(tmp_path: Path) -> None:
    lock, held, holding = tmp_path / ".lock", FORK.Event(), FORK.Event()

    def hold() -> None:
        with file_lock(lock):
            held.set()
            holding.wait()

    process = child(hold)
    assert held.wait(10)
    assert is_locked(lock)
    process.kill()
    process.join()
    assert not is_locked(lock)


def test_error_names_the_process_that_holds_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with one_at_a_time(folder, "run"):
        with pytest.raises(BlockingIOError) as error:
            with one_at_a_time(folder, "run"):
                pass
    said = str(error.value)
    assert "Another run is using" in said
    assert f"process {os.getpid()} on {platform.node()}. Wait" in said
    # Commands have different options for their folders.
    assert "or use another folder. " in said
    with one_at_a_time(folder, "run"):
        pass


def test_file_system_without_locks_warns(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with one_at_a_time(tmp_path, "run"), one_at_a_time(tmp_path, "run"):
        assert "No locks available). Make sure" in caplog.text


def test_lock_follows_no_link(tmp_path: Path) -> None:
    target = tmp_path / "thesis.tex"
    target.write_text("somebody's")
    (tmp_path / ".lock").symlink_to(target)
    with pytest.raises(OSError):
        with file_lock(tmp_path / ".lock"):
            pass
    assert target.read_text() == "somebody's"


def test_differences_are_one_line_each_and_listed_in_part() -> None:
    before = {"a": {"b": 1, "c": [1, 2], "e": {}}, "d": None}
    after = {"a": {"b": 2.5, "c": [1, 3, "x"], "e": {}}, "f": True}
    assert differences(before, after) == [
        "a.b: 1 → 2.5",
        "a.c.1: 2 → 3",
        "a.c.2: nothing → x",
        "f: nothing → True",
    ]
    assert differences({}, {"a": 1}) == ["a: nothing → 1"]
    assert differences(before, {**before}) == differences({}, {}) == []
    changes = differences(dict.fromkeys("abcdefg", 0), {})
    assert format_changes(changes).splitlines()[-2:] == [
        "  e: 0 → nothing",
        "  … and 2 more",
    ]
