"""Rows pushed into databases: interrupted, repeated, refused, compared."""

import dataclasses
import json
import socket
import time
import tracemalloc

import numpy as np
import pytest

from keras_dml.cli import main
from keras_dml.search import Index, IndexFileError, open_index, push
from keras_dml.search.pushing import database_at
from tests.cli.test_commands import run
from tests.search.conftest import DATABASES, release

COUNT, DIM = 230, 8
X = np.random.default_rng(0).normal(size=(COUNT, DIM)).astype(np.float32)
KEYS = [f"k{i}" for i in range(COUNT)]
COLUMNS = {"n": list(range(COUNT)), "name": ["a", None] * 115}


databases = pytest.mark.parametrize("at", DATABASES, indirect=True)


def gallery(**options) -> Index:
    return Index(X, COLUMNS, **{"keys": KEYS, **options})


def fails_after(monkeypatch, uri: str, count: int) -> None:
    """Has the database go away after so many writes."""
    kind, calls = type(database_at(uri, "a test")), []
    append = kind.append

    def lost(self, block):
        calls.append(block)
        if len(calls) > count:
            raise OSError(f"{self.store} cannot be reached")
        append(self, block)

    monkeypatch.setattr(kind, "append", lost)


def written(uri: str):
    index = open_index(uri)
    found = index.keys, index.columns, index.embeddings.tolist()
    index.close()
    return found


def shards_of(folder, x=X):
    from keras_dml.embedding import write_shards

    ids = [f"k{i}" for i in range(len(x))]
    return write_shards(
        x, folder, np.arange(len(x)), ids=ids, rows_per_shard=100,
        progress=False,
    )  # fmt: skip


@databases
def test_a_push_of_shards_that_was_interrupted_goes_on(
    at, monkeypatch, tmp_path
) -> None:
    shards, other = shards_of(tmp_path / "x"), shards_of(tmp_path / "y", -X)
    with monkeypatch.context() as patch:
        fails_after(patch, at("a"), 2)
        with pytest.raises(OSError, match="Repeat the same call"):
            push(shards, at("a"), batch_size=50)
    with pytest.raises(IndexFileError, match="Push it again to continue"):
        open_index(at("a"))
    for source in (other, gallery()):
        with pytest.raises(FileExistsError, match="another index"):
            push(source, at("a"))
    pushed = push(shards, at("a"), batch_size=50)
    assert (pushed.rows, pushed.written) == (COUNT, COUNT - 100)
    local = Index(shards)
    assert written(at("a")) == (KEYS, local.columns, local.embeddings.tolist())
    # Once more, there is nothing to do.
    assert push(shards, at("a")).written == 0
    table = database_at(at("a"), "a test")
    table.open()
    table.delete("id >= 100 and id < 105")
    assert push(shards, at("a")).written == 5
    table.append(dataclasses.replace(
        table.rows(np.array([7])), ids=np.array([COUNT]), keys=["more"]
    ))  # fmt: skip
    with pytest.raises(OSError, match="231 rows instead of 230"):
        push(shards, at("a"))
    table.close()
    # It is no longer what was pushed.
    opened = open_index(at("a"))
    assert opened.add(X[:1], keys=["new"]).tolist() == [COUNT]
    opened.close()
    with pytest.raises(FileExistsError, match="another index"):
        push(shards, at("a"))


@databases
def test_an_index_is_pushed_again_or_refused(at, monkeypatch) -> None:
    index = gallery()
    index.remove(["k3", "k100"])
    with monkeypatch.context() as patch:
        fails_after(patch, at("a"), 2)
        with pytest.raises(OSError, match="Repeat the same call"):
            index.push(at("a"), batch_size=50)
    pushed = index.push(at("a"), batch_size=50)
    assert (pushed.rows, pushed.written) == (228, 228)
    before = index.keys, index.columns, index.embeddings.tolist()
    assert written(at("a")) == before
    for other in (index, Index(X[:, :5], keys=KEYS), gallery(keys="n")):
        with pytest.raises(FileExistsError, match="another index"):
            other.push(at("a"))
    assert written(at("a")) == before
    opened = open_index(at("a"))
    assert opened.add(X[:1], keys=["new"]).tolist() == [COUNT]
    opened.close()
    assert Index(X, keys=KEYS).push(at("a"), overwrite=True).written == COUNT
    assert written(at("a"))[1] == {}


@databases
def test_a_writer_goes_on_from_what_another_wrote(at) -> None:
    gallery().push(at("a"))
    first, second = open_index(at("a")), open_index(at("a"))
    assert first.add(X[:1], {"new": ["x"]}, keys=["first"]).tolist() == [COUNT]
    ids = second.add(X[:1], {"n": [7]}, keys=["second"])
    assert ids.tolist() == [COUNT + 1]
    assert second["first"]["new"] == "x"
    assert len(first) == COUNT + 2
    for index in (first, second):
        index.close()


@pytest.mark.parametrize("at", DATABASES[:1], indirect=True)
def test_files_of_many_small_writes_are_joined(at, tmp_path) -> None:
    import lancedb

    gallery().push(at("a"), batch_size=2)
    table = lancedb.connect(tmp_path / "tables").open_table("a")
    assert table.stats()["fragment_stats"]["num_fragments"] == 1
    assert written(at("a"))[0] == KEYS


@databases
def test_states_that_are_damaged_or_of_the_future(at) -> None:
    gallery().push(at("a"))
    table = database_at(at("a"), "a test")
    state = table.read_state()
    future = {**json.loads(state), "format_version": 9}
    for text, match in (
        (json.dumps(future), "format_version=9"),
        (state[:-20], "not JSON"),
        (state.replace('"dim": 8', '"dim": "8"'), "damaged"),
    ):
        table.write_state(_Text(text))
        with pytest.raises(IndexFileError, match=match):
            open_index(at("a"))
        with pytest.raises(IndexFileError, match=match):
            gallery().push(at("a"))
    gallery().push(at("a"), overwrite=True)
    assert written(at("a"))[0] == KEYS
    table.close()


class _Text:
    """A state whose text is given."""

    def __init__(self, text: str) -> None:
        self._text, self.types = text, {}

    def to_json(self) -> str:
        return self._text


@pytest.mark.parametrize("at", DATABASES[:1], indirect=True)
def test_a_table_of_somebody_else_in_lancedb(at, tmp_path) -> None:
    import lancedb

    base = lancedb.connect(tmp_path / "tables")
    base.create_table("a", [{"id": 1, "vector": [0.0] * 8}])
    refused(at("a"))
    assert base.open_table("a").count_rows() == 1


@pytest.mark.parametrize("at", DATABASES[1:], indirect=True)
def test_a_collection_of_somebody_else_in_milvus(at, tmp_path) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(str(tmp_path / "index.db"))
    client.create_collection("a", dimension=8)
    client.insert("a", [{"id": 1, "vector": [0.5] * 8}])
    refused(at("a"))
    assert client.query("a", filter="id > 0", output_fields=["id"])
    client.close()


def refused(uri: str) -> None:
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="Nothing was touched"):
            gallery().push(uri, overwrite=overwrite)
    with pytest.raises(IndexFileError, match="something else"):
        open_index(uri)


@databases
def test_what_is_not_there(at, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no index in"):
        open_index(at("a"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def silent_port():
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.engines
def test_a_server_that_is_not_there_or_does_not_answer(silent_port) -> None:
    pytest.importorskip("pymilvus")
    for port in (1, silent_port):
        began = time.monotonic()
        with pytest.raises(OSError, match="cannot be reached"):
            gallery().push(f"milvus://127.0.0.1:{port}/a")
        assert time.monotonic() - began < 20


@pytest.mark.engines
def test_an_object_store_that_is_not_there(monkeypatch) -> None:
    pytest.importorskip("lancedb")
    for name, value in {
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "c",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="cannot be reached"):
        gallery().push("lancedb+s3://bucket/path/a")


@pytest.mark.engines
def test_a_server_that_is_lost_on_the_way(tmp_path, monkeypatch) -> None:
    """The process that answers ends, and is started again."""
    pytest.importorskip("milvus_lite")
    from milvus_lite.server_manager import server_manager_instance

    def start() -> str:
        file = str(tmp_path / "index.db")
        address = server_manager_instance.start_and_get_uri(file)
        return f"milvus://{address.removeprefix('http://')}/a"

    uri, blocks = start(), []
    kind = type(database_at(uri, "a test"))
    append = kind.append

    def lost(self, block):
        blocks.append(block)
        if len(blocks) == 3:
            release(tmp_path)
        append(self, block)

    monkeypatch.setattr("keras_dml.search.milvus.CALL", 3)
    monkeypatch.setattr(kind, "append", lost)
    with pytest.raises(OSError, match="Repeat the same call"):
        gallery().push(uri, batch_size=10)
    uri = start()
    assert gallery().push(uri).written == COUNT
    assert written(uri)[0] == KEYS
    release(tmp_path)


@databases
def test_shards_are_streamed(at, tmp_path) -> None:
    from keras_dml.embedding import write_shards

    count = 2000 if "milvus" in at("a") else 20_000
    x = np.random.default_rng(1).normal(size=(count, 64)).astype("float32")
    labels = np.arange(count) % 50
    shards = write_shards(x, tmp_path / "shards", labels, progress=False,
                          rows_per_shard=count // 20)  # fmt: skip
    assert push(shards, at("a"), batch_size=1000).written == count
    if "milvus" not in at("a"):  # Its server is in this process.
        tracemalloc.start()
        push(shards, at("again"), batch_size=1000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < x.nbytes
    index, local = open_index(at("a")), Index(shards)
    where = {"label": [3, 4]}
    found = index.search(x[:3], 5, where=where)
    expected = local.search(x[:3], 5, where=where)
    assert found.keys == expected.keys
    assert [x.row for x in found[0]] == [x.row for x in expected[0]]
    assert index[found.keys[0][0]]["label"] in (3, 4)
    with pytest.raises(ValueError, match="only be given for EmbeddingShards"):
        push(local, at("b"), keys="row")
    index.close()


@databases
def test_the_command(at, tmp_path) -> None:
    gallery().save(tmp_path / "index")
    output = run("push", str(tmp_path / "index"), at("a"), "--batch-size", "99")
    assert "230 of them written by this call" in output.replace("\n", " ")
    assert written(at("a"))[0] == KEYS


def test_the_command_names_what_is_wrong(tmp_path) -> None:
    gallery().save(tmp_path / "index")
    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["push", str(tmp_path / "index"), "x"])
    assert result.exit_code == 1
    assert "`uri` of push must be lancedb://" in result.output
    (tmp_path / "recipe.yaml").touch()
    arguments = ["index", str(tmp_path), "test", "--store", "x"]
    result = CliRunner().invoke(main, arguments)
    assert "`uri` of --store must be lancedb://" in result.output
    result = CliRunner().invoke(main, [*arguments, "--output", "y"])
    assert "cannot be combined" in result.output
