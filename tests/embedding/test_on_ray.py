"""Embedding by actors of Ray, of which one is killed."""

import os
import signal
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from keras_dml.embedding import embed
from tests.embedding import long_run
from tests.embedding.test_killed import check, descendants, shards

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not find_spec("ray"), reason="needs ray"),
    # Ray's own, of files and sockets that it leaves to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def actors() -> list[int]:
    """The processes of this one's actors that are at work."""
    found = []
    for process in descendants(os.getpid()):
        name = Path(f"/proc/{process}/cmdline").read_bytes()
        if b"ray::Worker.do" in name:
            found.append(process)
    return found


def test_an_actor_that_is_killed(tmp_path):
    out = tmp_path / "out"
    killed: list[int] = []

    def kill() -> None:
        while len(shards(out)) < 3 or not actors():
            time.sleep(0.005)
        killed.extend(actors()[:1])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    found = long_run.embedded(str(out), workers=2, ray="local")
    thread.join(10)
    assert killed
    check(found, embed(long_run.network(), long_run.images()))
