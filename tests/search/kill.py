"""Kills processes that save an index, at every moment of the save.

    python -m tests.search.kill FOLDER

A fork that saves is killed at the calls at which a version comes to be, one
after the other, in a new folder and in one of an index; after each of the
latter, the index must load and be one of the two versions.
"""

import os
import shutil
import signal
import sys
from functools import partial

import numpy as np

from keras_dml.search import Index, store
from tests.forks import exit_status, forked

CALLS = ("fsync", "replace", "close")


def index_of(value: float) -> Index:
    """A version with the value in its keys, columns and vectors."""
    x = np.random.default_rng(0).normal(size=(3000, 32)) + value
    keys = [f"{value}-{row}" for row in range(3000)]
    return Index(x, {"value": [value] * 3000}, keys=keys)


def check(folder: str) -> float:
    """The saved version; asserts that all parts belong to it."""
    index = Index.load(folder)
    (value,) = set(index.columns["value"])
    expected = index_of(value)
    assert index.keys == expected.keys
    assert np.array_equal(index.embeddings, expected.embeddings)
    return value


def kill_at(call: str, number: int) -> None:
    """Replaces a function of `os` by one that kills at its n-th call."""
    original, count = getattr(os, call), [0]

    def deadly(*arguments):
        count[0] += 1
        if count[0] > number:
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


def is_killed(folder: str, index: Index, prepare) -> bool:
    """Whether a fork that saves was killed, and not done before."""

    def work() -> None:
        prepare()
        index.save(folder, overwrite=True)

    status = exit_status(forked(work))
    assert status in (0, -signal.SIGKILL)
    return status != 0


def main(folder: str) -> None:
    versions, seen = (index_of(0.0), index_of(1.0)), set()
    for call in CALLS:
        number = 0
        while is_killed(folder, versions[0], partial(kill_at, call, number)):
            number += 1
        assert number > 0
        check(folder)
        shutil.rmtree(folder)
    versions[0].save(folder)

    def attempt(kind, prepare) -> bool:
        before = check(folder)
        killed = is_killed(folder, versions[before == 0.0], prepare)
        after = check(folder)
        if killed:
            seen.add((kind, "old" if after == before else "new"))
            # The next writer is not held up by what the killed one left.
            versions[after == 0.0].save(folder, overwrite=True)
            assert len(os.listdir(os.path.join(folder, store.DATA))) == 2
        return killed

    for part in ("vectors", "rows"):
        assert attempt(part, partial(kill_in_writing, part))
    for call in CALLS:
        number = 0
        while attempt(call, partial(kill_at, call, number)):
            number += 1
    both = {("fsync", "old"), ("fsync", "new"), ("replace", "old")}
    assert seen >= both | {("vectors", "old"), ("rows", "old")}


if __name__ == "__main__":
    main(sys.argv[1])
