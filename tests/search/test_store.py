"""The folder of an index: atomic saves and checksums."""

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from keras_dml.search import Index, IndexFileError, store
from tests.forks import run_on

X = np.random.default_rng(0).normal(size=(50, 8))


def saved(folder: Path, **options) -> Index:
    index = Index(X, {"name": [f"n{i}" for i in range(50)]}, **options)
    index.save(folder)
    return index


def same(a: Index, b: Index) -> bool:
    hits, again = a.search(X, 5), b.search(X, 5)
    return (
        np.array_equal(hits.ids, again.ids)
        and np.array_equal(hits.scores, again.scores)
        and a.columns == b.columns
        and np.array_equal(a.ids, b.ids)
        and (a.factory, a.parameters, a.recall, a.threshold)
        == (b.factory, b.parameters, b.recall, b.threshold)
    )


@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQ8", "HNSW8"])
def test_saved_index_loads_unchanged(factory, tmp_path) -> None:
    index = saved(tmp_path / "i", factory=factory)
    index.remove([3, 49])
    index.calibrate(X, np.arange(50) // 5, num_resamples=5)
    index.save(tmp_path / "i")
    assert len(list((tmp_path / "i" / "data").iterdir())) == 2
    again = Index.load(tmp_path / "i")
    assert same(index, again)
    assert again.add(X[:1]).tolist() == [50]
    assert again.search(X[3], 1).ids[0, 0] not in (3, 49)
    again.save(tmp_path / "i")
    assert same(again, Index.load(tmp_path / "i", verify=False))


def test_names_with_odd_characters_survive(tmp_path) -> None:
    names = [os.fsdecode(b"a\xffb"), "<script>", "line\nbreak", None, "é"]
    Index(X[:5], {"path": names}).save(tmp_path / "i")
    assert Index.load(tmp_path / "i").columns["path"] == names


def test_another_index_is_not_overwritten(tmp_path) -> None:
    saved(tmp_path / "i")
    other = Index(X[:3])
    with pytest.raises(FileExistsError, match="another index"):
        other.save(tmp_path / "i")
    mine, theirs = Index.load(tmp_path / "i"), Index.load(tmp_path / "i")
    theirs.remove(0)
    theirs.save(tmp_path / "i")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        mine.save(tmp_path / "i")
    assert len(Index.load(tmp_path / "i")) == 49
    other.save(tmp_path / "i", overwrite=True)
    assert len(Index.load(tmp_path / "i")) == 3


@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQ8", "HNSW8"])
def test_full_disk_leaves_the_old_version(
    factory, tmp_path, monkeypatch
) -> None:
    resource = pytest.importorskip("resource")
    index = saved(tmp_path / "i")
    small = Index(X[:9], factory=factory)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Rows fit, vectors do not. faiss itself would not notice.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            small.save(tmp_path / "i", overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same(index, Index.load(tmp_path / "i"))
    assert len(list((tmp_path / "i" / "data").iterdir())) == 2


def files(folder: Path) -> list[Path]:
    return [folder / "index.json", *sorted((folder / "data").iterdir())]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_damaged_files_raise(number, harm, tmp_path) -> None:
    saved(tmp_path / "i")
    path = files(tmp_path / "i")[number]
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[len(content) // 2] ^= 4
    path.write_bytes({"cut": content[:-9], "empty": b""}.get(harm, content))
    with pytest.raises(IndexFileError, match="is (damaged|does not belong to)"):
        Index.load(tmp_path / "i")


def test_foreign_and_newer_files_raise(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no index"):
        Index.load(tmp_path / "nothing")
    (tmp_path / "index.json").write_text('{"format": "other"}')
    with pytest.raises(IndexFileError, match="does not belong to"):
        Index.load(tmp_path)
    newer = {"format": store.FORMAT, "format_version": 99}
    (tmp_path / "index.json").write_text(json.dumps(newer))
    with pytest.raises(IndexFileError, match="Received: format_version=99"):
        Index.load(tmp_path)


def test_folder_can_be_moved(tmp_path) -> None:
    index = saved(tmp_path / "i")
    shutil.move(tmp_path / "i", tmp_path / "elsewhere")
    assert same(index, Index.load(tmp_path / "elsewhere"))
    files(tmp_path / "elsewhere")[1].unlink()
    with pytest.raises(FileNotFoundError, match="lacks the file data/"):
        Index.load(tmp_path / "elsewhere")


def test_reader_gets_the_version_written_meanwhile(
    tmp_path, monkeypatch
) -> None:
    """A new version is written between the manifest and its files."""
    saved(tmp_path / "i")
    read, count = store.read, [0]

    def read_then_replace(folder):
        manifest = read(folder)
        count[0] += 1
        if count[0] == 1:
            Index(X[:7]).save(tmp_path / "i", overwrite=True)
        return manifest

    monkeypatch.setattr(store, "read", read_then_replace)
    assert len(Index.load(tmp_path / "i")) == 7


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_save_survives_a_kill_at_any_moment(tmp_path, monkeypatch) -> None:
    """The old version, or the new one, loads after a kill at any moment."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_on("tensorflow", "-m", "tests.search.kill", str(tmp_path / "i"))


def test_reader_gets_the_version_written_while_faiss_opens_it(
    tmp_path, monkeypatch
) -> None:
    """faiss reports missing files like damaged ones."""
    folder, x = tmp_path / "i", np.eye(4, dtype=np.float32)
    Index(x).save(folder)
    read = store.read_vectors

    def replaced(path, *arguments):
        monkeypatch.undo()
        Index(x[:3]).save(folder, overwrite=True)
        return read(path, *arguments)

    monkeypatch.setattr(store, "read_vectors", replaced)
    assert len(Index.load(folder, verify=False)) == 3


def test_save_takes_the_lock_before_it_inspects_the_folder(
    tmp_path, monkeypatch
) -> None:
    """Files of another save must not count as foreign."""
    folder, x = tmp_path / "i", np.eye(4, dtype=np.float32)
    Index(x).save(folder)
    held = []
    inspect, file_lock = store._inspect, store.file_lock

    @contextlib.contextmanager
    def noting(path):
        with file_lock(path):
            held.append(True)
            yield
            held.clear()

    def inspected(path):
        assert held
        return inspect(path)

    monkeypatch.setattr(store, "file_lock", noting)
    monkeypatch.setattr(store, "_inspect", inspected)
    Index(x[:3]).save(folder, overwrite=True)
    assert len(Index.load(folder)) == 3


def test_first_save_waits_for_another_first_save(tmp_path, monkeypatch) -> None:
    """The other save's files may appear before ours takes the lock."""
    folder, x = tmp_path / "i", np.eye(4, dtype=np.float32)
    inspect = store._inspect

    def late(path):
        monkeypatch.setattr(store, "_inspect", inspect)
        Index(x).save(folder)
        raise FileExistsError("it holds other files")

    monkeypatch.setattr(store, "_inspect", late)
    Index(x[:3]).save(folder, overwrite=True)
    assert len(Index.load(folder)) == 3
