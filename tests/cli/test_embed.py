"""`keras-dml embed`: models, sources and printed output."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from keras_dml.cli.commands import embed as command
from keras_dml.data import ImageSet, image_folder
from keras_dml.embedding import EmbeddingShards, embed
from tests.cli.test_commands import run
from tests.embedding.test_embed_shards import COUNT, files, model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with `model.keras`, `flat/` and `classes/`."""
    folder = tmp_path_factory.mktemp("embed")
    model().save(folder / "model.keras")
    images = files(folder / "flat")
    for path, label in zip(images.paths, images.labels, strict=True):
        target = folder / "classes" / "abcd"[label] / Path(path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(path).read_bytes())
    return folder


def embedded(folder: Path, source: str, out: Path, *more: str):
    """Embeds a source; returns the shards and the printed output."""
    options = ("--rows-per-shard", "9", *more)
    printed = run("embed", str(folder / "model.keras"), source, str(out),
                  *options)  # fmt: skip
    return EmbeddingShards(out), printed


def expected(folder: Path) -> np.ndarray:
    """Embeddings of the flat folder's images, in byte order."""
    return embed(model(), ImageSet(sorted((folder / "flat").iterdir())))


@pytest.mark.slow
def test_folder_of_classes_is_embedded_with_labels(folder, tmp_path):
    shards, printed = embedded(
        folder, str(folder / "classes"), tmp_path / "out"
    )
    for text in (f"│ {COUNT} ", "3 (float32)"):
        assert text in printed
    images = image_folder(folder / "classes")
    np.testing.assert_allclose(
        shards.array(), embed(model(), images), atol=1e-6
    )
    np.testing.assert_array_equal(shards.labels, images.labels)
    assert shards.names == dict(enumerate("abcd"))
    assert shards.ids[0] == "a/00.png"


def test_split_of_a_run_is_embedded(run_of, tmp_path):
    folder = str(run_of("baseline"))
    printed = run("embed", folder, "test", str(tmp_path / "out"), "--model",
                  "last", "--dtype", "float16")  # fmt: skip
    assert "(float16)" in printed
    shards = EmbeddingShards(tmp_path / "out")
    assert len(shards) == 36 and shards.labels is not None
    printed = run("embed", folder, "test", str(tmp_path / "out"), code=1)
    assert "dtype: float16 → float32" in printed and "--overwrite" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["list.tsv", "urls.parquet"])
def test_table_of_paths_or_urls_is_embedded_with_its_columns(
    folder, tmp_path, name
):
    has_types = name == "urls.parquet"
    start = f"file://{folder}/flat/" if has_types else "flat/"
    table = {
        ("url" if has_types else "path"): [
            f"{start}{row:02d}.png" for row in range(COUNT)
        ],
        "id": [f"n{row}" for row in range(COUNT)],
        "label": [row % 2 for row in range(COUNT)],
        "name": ["even", "odd"] * (COUNT // 2) + ["even"],
        "price": [row / 4 for row in range(COUNT)],
        "colour": ["bläulich"] * COUNT,
    }
    if has_types:
        parquet.write_table(pa.table(table), folder / name)
    else:
        rows = [table, *zip(*table.values(), strict=True)]
        lines = ["\t".join(map(str, row)) for row in rows]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    shards, _ = embedded(folder, str(folder / name), tmp_path / "out")
    np.testing.assert_allclose(shards.array(), expected(folder), atol=1e-6)
    assert shards.ids == table["id"]
    np.testing.assert_array_equal(shards.labels, table["label"])
    assert shards.names == {0: "even", 1: "odd"}
    assert shards.columns["price"][3] == (0.75 if has_types else "0.75")
    assert shards.columns["colour"] == table["colour"]
    if not has_types:
        assert shards.columns["path"][2] == str(folder / "flat" / "02.png")


@pytest.mark.slow
def test_list_of_paths_is_embedded(folder, tmp_path):
    lines = [f"flat/{row:02d}.png" for row in range(COUNT)]
    lines[3] = f"file://{folder}/flat/03.png"
    (folder / "list.txt").write_text("\n".join(["", *lines, ""]))
    shards, _ = embedded(folder, str(folder / "list.txt"), tmp_path / "out")
    np.testing.assert_allclose(shards.array(), expected(folder), atol=1e-6)
    assert shards.columns["path"][4] == str(folder / "flat" / "04.png")


@pytest.mark.parametrize(
    ("source", "content", "message"),
    [
        ("a.csv", "label\n1\n", "must have a column of paths or URLs"),
        ("a.csv", "path,label\nx.png,\n", "empty cell in row 1"),
        ("a.csv", "path\n", "Received: no rows"),
        ("a.csv", "path,label,name\nx,1,a\ny,1,b\n", "have one name per label"),
        ("a.txt", "\n", "Received: an empty file"),
        ("a.txt", "\udcff", "must be text in UTF-8"),
        ("a.zip", "", "'a.zip', which is none"),
        ("nowhere", None, "which does not exist"),
        ("s3://bucket/images", None, "which is none"),
        ("test", None, "requires the data of a run. Received: a model without"),
        ("tfds:cars196", None, "must be tfds:NAME:SPLIT"),
        ("tfds:food102:test", None, "Did you mean 'food101'?"),
    ],
)
def test_unfit_source_raises(
    folder, tmp_path, monkeypatch, source, content, message
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(source).write_bytes(content.encode(errors="surrogateescape"))
    model = folder / "model.keras"
    assert message in run("embed", model, source, "out", code=1)
    assert not Path("out").exists()


def test_column_named_like_one_of_shards_is_left_out(folder, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text(f"path,row,shop\n{folder}/flat/00.png,7,x\n")
    with pytest.warns(UserWarning, match="`row`.*is left out.*Rename"):
        shards, _ = embedded(folder, str(table), tmp_path / "out")
    assert shards.columns["row"] == [0]
    assert shards.columns["shop"] == ["x"]


def test_ctrl_c_tells_how_to_continue(folder, tmp_path, monkeypatch):
    def interrupted(*_, ray, **__) -> None:
        assert ray is True
        raise KeyboardInterrupt(signal.SIGINT)

    monkeypatch.setattr("keras_dml.embedding.embed_shards", interrupted)
    printed = run("embed", str(folder / "model.keras"), str(folder / "flat"),
                  str(tmp_path / "out"), "--ray", code=130)  # fmt: skip
    assert "Run the same command to continue" in printed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sigterm_in_a_destructor_ends_the_command(monkeypatch):
    monkeypatch.setattr(command, "REPEAT_SECONDS", 0.1)

    class Destroyed:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    deadline = time.monotonic() + 60
    with pytest.raises(SystemExit) as ended, command._ending_well():
        Destroyed()
        while time.monotonic() < deadline:
            time.sleep(0.01)
    assert ended.value.code == 75


@pytest.mark.slow
def test_sigterm_ends_a_run_that_can_be_continued(folder, tmp_path):
    out = tmp_path / "out"
    many = tmp_path / "many.txt"
    many.write_text("\n".join([f"{folder}/flat/00.png"] * 30_000))
    command = [
        sys.executable, "-W", "ignore", "-c",
        "from keras_dml.cli import main; main()", "embed",
        str(folder / "model.keras"), str(many), str(out),
        "--rows-per-shard", "100",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as ran:
        try:
            deadline = time.monotonic() + 120
            while len(list(out.glob("*.parquet"))) < 2:
                assert ran.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            os.kill(ran.pid, signal.SIGTERM)
            _, printed = ran.communicate(timeout=60)
        finally:
            ran.kill()
    assert ran.returncode == 75
    assert "Run the same command to continue" in printed
    assert "Traceback" not in printed
    with pytest.raises(ValueError, match="must be complete"):
        EmbeddingShards(out)
    assert not list(out.glob(".shard*"))
