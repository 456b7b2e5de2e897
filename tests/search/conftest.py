"""Where an index can be kept, for tests that walk all engines."""

from collections.abc import Callable
from pathlib import Path

import pytest

ENGINES = [
    "faiss",
    pytest.param("lancedb", marks=pytest.mark.engines),
    pytest.param("milvus", marks=pytest.mark.engines),
]

DATABASES = ENGINES[1:]


def place(engine: str, folder: Path) -> Callable[[str], str | None]:
    """From a name to the address that an engine has for it."""
    if engine == "faiss":
        return lambda name: None
    if engine == "lancedb":
        pytest.importorskip("lancedb")
        return lambda name: f"lancedb://{folder}/tables/{name}"
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    return lambda name: f"milvus://{folder}/index.db/{name}"


def release(folder: Path) -> None:
    """Stops the servers of files of Milvus that a test has opened."""
    try:
        from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        return
    server_manager_instance.release_server(str(folder / "index.db"))


@pytest.fixture
def at(request, tmp_path):
    """From a name to an address, of the engine that is the parameter."""
    yield place(request.param, tmp_path)
    release(tmp_path)
