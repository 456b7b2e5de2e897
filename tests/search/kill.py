"""Saves an index over and over, and is killed while it does.

    python kill.py FOLDER

A child process that saves is killed at the calls at which a version comes to
be, one after the other, in a new folder and in one of an index; after each of
the latter, the index must load and be one of the two versions. Prints how often
it was which.
"""

import os
import shutil
import signal
import sys
from collections import Counter
from functools import partial

import numpy as np

from keras_dml.search import Index, store

CALLS = ("fsync", "replace", "close")


def index_of(value: float) -> Index:
    """A version; all keys, columns and vectors come by replacing rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 32)) + value
    keys = [f"{value}-{row}" for row in range(2990)]
    shared = [f"both-{row}" for row in range(10)]
    index = Index(x, {"value": [-1.0] * len(x)}, keys=keys + shared)
    index.add(
        np.roll(x, 10, axis=0),
        {"value": [value] * 3000},
        keys=shared + keys,
        replace=True,
    )
    return index


def check(folder: str) -> float:
    """The version that is there: all of its parts must belong to it."""
    index = Index.load(folder)
    values = set(index.columns["value"])
    assert len(index) == 3000
    (value,) = values
    keys = set(index.keys)
    assert {f"{value}-{row}" for row in range(2990)} < keys
    assert len(keys) == 3000
    rng = np.random.default_rng(0)
    query = rng.normal(size=(1, 32)) + value
    assert index.search(query, 1).scores[0, 0] > 0.999999
    return value


def kill_at(call: str, number: int) -> None:
    """Replaces a function of `os` by one that kills at its n-th call."""
    original = getattr(os, call)
    left = [number]

    def deadly(*arguments):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(os, call, deadly)


def kill_in_writing(part: str) -> None:
    """Kills while a file is half written."""

    def half(folder, name, write):
        entry = original(folder, name, write)
        if part not in name:
            return entry
        with (folder / store.DATA / name).open("r+b") as file:
            file.truncate(entry.bytes // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    original, store._write_file = store._write_file, half


def save_in_child(folder: str, index: Index, prepare) -> bool:
    """Whether a child that saves was killed, and not done before."""
    child = os.fork()
    if child == 0:
        prepare()
        index.save(folder, overwrite=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def kill_first_saves(folder: str, index: Index) -> int:
    """How many saves into a new folder were killed, one after the other."""
    count = 0
    for call in CALLS:
        for number in range(50):
            if not save_in_child(folder, index, partial(kill_at, call, number)):
                break
            count += 1
        check(folder)
        shutil.rmtree(folder)
    return count


def main(folder: str) -> None:
    versions = index_of(0.0), index_of(1.0)
    print("first killed", kill_first_saves(folder, versions[0]))
    versions[0].save(folder)
    outcomes = Counter()

    def attempt(kind, prepare) -> bool:
        before = check(folder)
        new = versions[before == 0.0]
        killed = save_in_child(folder, new, prepare)
        after = check(folder)
        outcomes[kind, "new" if after != before else "old", killed] += 1
        if killed:
            # The next writer is not held up by what the killed one left.
            versions[after == 0.0].save(folder, overwrite=True)
            assert len(os.listdir(os.path.join(folder, store.DATA))) == 2
        return killed

    for part in ("vectors", "rows"):
        assert attempt(part, partial(kill_in_writing, part))
    for call in CALLS:
        for number in range(50):
            if not attempt(call, partial(kill_at, call, number)):
                break
    for (kind, version, killed), count in sorted(outcomes.items()):
        print(kind, version, "killed" if killed else "done", count)


if __name__ == "__main__":
    main(sys.argv[1])
