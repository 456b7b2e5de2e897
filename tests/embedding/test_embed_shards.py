"""`embed_shards`: written files, errors and continuation."""

import functools
import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import keras
import numpy as np
import pytest
from PIL import Image

from keras_dml.data import ArraySet, ImageSet
from keras_dml.embedding import (
    EmbeddingShards,
    embed,
    embed_shards,
    write_shards,
)
from keras_dml.embedding import shards as shards_module
from keras_dml.utils.files import atomic_file

COUNT = 23


@functools.cache
def model(seed: int = 0) -> keras.Model:
    """A network that no test changes."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((6, 6, 1))
    flat = keras.layers.Flatten()(inputs / 255.0)
    return keras.Model(inputs, keras.layers.Dense(3)(flat))


def pixels(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (COUNT, 6, 6), dtype=np.uint8)


def examples(seed: int = 0) -> ArraySet:
    x = pixels(seed)[..., None].astype("float32")
    return ArraySet(x, np.arange(COUNT) % 4, names=list("abcd"))


def files(folder: Path, bad: tuple[int, ...] = ()) -> ImageSet:
    """Writes images to files; the bad ones cannot be decoded."""
    folder.mkdir(exist_ok=True)
    for row, image in enumerate(pixels()):
        path = folder / f"{row:02d}.png"
        Image.fromarray(image).save(path)
        if row in bad:
            path.write_bytes(b"not an image")
    return ImageSet(sorted(folder.iterdir()), np.arange(COUNT) % 4)


def shards(folder: Path) -> dict[str, int]:
    """Modification time of each shard."""
    paths = folder.glob("shard-*.parquet")
    return {path.name: path.stat().st_mtime_ns for path in paths}


def embedded(folder, network=None, source=None, **kwargs) -> EmbeddingShards:
    network = model() if network is None else network
    source = examples() if source is None else source
    return embed_shards(
        network, source, folder, **({"rows_per_shard": 5} | kwargs)
    )


def test_shards_hold_what_embed_returns(tmp_path):
    model().save(tmp_path / "model.keras")
    shards = embedded(tmp_path / "out", tmp_path / "model.keras", batch_size=4)
    expected = embed(model(), examples())
    np.testing.assert_allclose(shards.array(), expected, atol=1e-6)
    assert shards.num_shards == 5
    np.testing.assert_array_equal(shards.labels, examples().labels)
    assert shards.names == {0: "a", 1: "b", 2: "c", 3: "d"}
    again = EmbeddingShards(f"file://{tmp_path}/out")
    assert shards.model.difference(again.model) == ""
    assert {x.name for x in (tmp_path / "out").iterdir()} == {
        "_manifest.json", ".lock", *(f"shard-0000{i}.parquet" for i in range(5))
    }  # fmt: skip


@pytest.mark.slow
def test_shards_of_all_kinds_of_examples_are_equal(tmp_path, monkeypatch):
    x = pixels()[..., None].astype("float32")
    arrays = ArraySet(x, ids=[f"n{row}" for row in range(COUNT)])
    expected = embed(model(), arrays)
    files(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    images = ImageSet(sorted(map(str, Path("images").iterdir())))
    sources = (arrays, x, (x, np.arange(COUNT)), images, ImageSet(pixels()))
    results = [
        embedded(tmp_path / str(number), source=source)
        for number, source in enumerate(sources)
    ]
    for shards in results:
        np.testing.assert_allclose(shards.array(), expected, atol=1e-6)
    assert results[0].ids[3] == "n3"
    assert results[2].labels[3] == 3
    assert results[3].ids[3] == "03.png"
    assert results[3].columns["path"][3] == str(tmp_path / "images/03.png")


def test_shards_at_a_url_are_written_aside_and_continued():
    url = "memory://embed_shards/a/b"
    shards = embedded(url)
    expected = embed(model(), examples())
    np.testing.assert_allclose(shards.array(), expected, atol=1e-6)
    names = {Path(x).name for x in fsspec.filesystem("memory").find(url)}
    assert len(names) == 6 and not any(x.startswith(".") for x in names)
    assert embedded(url).run_id == shards.run_id
    with pytest.raises(FileExistsError, match="with different weights"):
        embedded(url, model(seed=1))


def test_embed_shards_continues_after_an_interruption(tmp_path, monkeypatch):
    write = shards_module.Storage.write

    def stop(self, name, content):
        if name == "shard-00003.parquet":
            raise KeyboardInterrupt
        write(self, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(shards_module.Storage, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            embedded(tmp_path)
    before = shards(tmp_path)
    assert len(before) == 3
    with atomic_file(tmp_path / "shard-00003.parquet") as partial:
        partial.write_bytes(b"half of a writer that was killed")
    (tmp_path / "shard-00003.parquet").rename(partial)
    whole = embedded(tmp_path, batch_size=7)
    after = shards(tmp_path)
    assert {name: after[name] for name in before} == before
    assert not partial.exists()
    assert whole.columns["row"] == list(range(COUNT))
    expected = embed(model(), examples())
    np.testing.assert_allclose(whole.array(), expected, atol=1e-6)
    embedded(tmp_path, progress=True)
    assert shards(tmp_path) == after


@pytest.mark.slow
def test_embed_shards_continues_after_a_kill(tmp_path):
    """Finished shards are kept, and each row occurs once."""
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from tests.embedding.test_embed_shards import *\n"
        "x = np.tile(pixels(), (40, 1, 1))\n"
        f"embed_shards(model(), x, {str(tmp_path)!r}, rows_per_shard=9)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + 300
        while len(shards(tmp_path)) < 3:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    before = shards(tmp_path)
    subprocess.run(command, check=True)
    after = shards(tmp_path)
    assert {name: after[name] for name in before} == before
    whole = EmbeddingShards(tmp_path)
    assert whole.columns["row"] == list(range(40 * COUNT))
    expected = np.tile(embed(model(), pixels()), (40, 1))
    np.testing.assert_allclose(whole.array(), expected, atol=1e-6)


OTHERS = {
    "with different weights": lambda: {"network": model(seed=1)},
    "dtype: float32 → float16": lambda: {"dtype": "float16"},
    "rows_per_shard: 5 → 6": lambda: {"rows_per_shard": 6},
    "columns: .*'a'": lambda: {"columns": {"a": range(COUNT)}},
    "examples: 23 → 20": lambda: {"source": examples().select(range(20))},
    "columns: .*'label'": lambda: {"source": examples().with_labels(None)},
    "fingerprint: ": lambda: {"source": examples(1)},
}


def test_another_run_raises_unless_it_overwrites(tmp_path):
    embedded(tmp_path)
    before = shards(tmp_path)
    for message, change in OTHERS.items():
        with pytest.raises(FileExistsError, match=f"(?s){message}.*--overwr"):
            embedded(tmp_path, **change())
        assert shards(tmp_path) == before, message
    with pytest.raises(FileExistsError, match="model: recorded → not"):
        write_shards(np.ones((COUNT, 3)), tmp_path, rows_per_shard=5)
    first = EmbeddingShards(tmp_path)
    second = embedded(tmp_path, source=examples(1), overwrite=True)
    assert second.run_id != first.run_id
    (tmp_path / "_manifest.json").unlink()
    with pytest.raises(FileExistsError, match="shards without _manifest"):
        embedded(tmp_path)


def test_unwritable_folder_raises(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="which contains 'file'"):
            embedded(tmp_path, overwrite=overwrite)
    with shards_module.Storage(tmp_path / "out").lock():
        with pytest.raises(BlockingIOError, match="Another embedding.*process"):
            embedded(tmp_path / "out")
    embedded(tmp_path / "out")
    manifest = tmp_path / "out" / "_manifest.json"
    text = manifest.read_text()
    version = '"format_version": '
    manifest.write_text(text.replace(f"{version}1", f"{version}2"))
    with pytest.raises(ValueError, match="format_version=2.*that wrote it"):
        embedded(tmp_path / "out")

    def refuse(*_, **__):
        raise NotImplementedError

    memory = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "pipe_file", refuse)
    with pytest.raises(OSError, match="only_read' is read-only"):
        embedded("memory://embed_shards/only_read")
    with pytest.raises(ValueError, match="nowhere"):
        embedded("nowhere://bucket/x")


def test_full_disk_raises_and_leaves_no_shard(tmp_path, monkeypatch):
    def fill(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards_module, "write_atomically", fill)
    with pytest.raises(OSError, match="No space left"):
        embedded(tmp_path)
    monkeypatch.undo()
    write = shards_module.write_atomically
    monkeypatch.setattr(
        shards_module,
        "write_atomically",
        lambda path, x: (write if path.endswith("json") else fill)(path, x),
    )
    with pytest.raises(OSError, match="shard-00000.*No space.*to continue"):
        embedded(tmp_path)
    assert not shards(tmp_path)


REFUSALS = {
    "`dtype` of embed_shards must be one of": {"dtype": "int8"},
    "`rows_per_shard` of embed_shards must be an": {"rows_per_shard": 0},
    "`batch_size` of embed_shards must be an integer": {"batch_size": 0},
    "other than .*row. Received: 1 val": {"columns": {"row": [1]}},
    "23 values, .*Received: 1 values of 'a'": {"columns": {"a": [1]}},
    "single type .*'a', which": {"columns": {"a": [1, "x"] * 11 + [2]}},
    "must not be empty": {"source": examples().select([])},
    "`examples` of embed_shards must be an Image": {"source": "images/"},
    "`engine` of embed_shards must be": {"engine": "onnx"},
}


def test_bad_argument_raises_before_anything_is_written(tmp_path):
    for message, options in REFUSALS.items():
        with pytest.raises(ValueError, match=message):
            embedded(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_unreadable_image_is_named_and_the_run_continues(tmp_path):
    images = files(tmp_path / "images", bad=(8,))
    with pytest.raises(ValueError, match="08.png' cannot be decoded"):
        embedded(tmp_path / "out", source=images)
    before = shards(tmp_path / "out")
    assert len(before) == 1
    files(tmp_path / "images")
    whole = embedded(tmp_path / "out", source=images)
    np.testing.assert_array_equal(whole.array(), embed(model(), images))
    assert before.items() <= shards(tmp_path / "out").items()


@pytest.mark.slow
def test_images_at_urls_are_downloaded(tmp_path):
    memory = fsspec.filesystem("memory")
    urls = []
    for row, image in enumerate(pixels()):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "PNG")
        urls.append(f"memory://remote_images/{row:02d}.png")
        memory.pipe_file(urls[-1], content.getvalue())
    # Files of this machine may be among them.
    urls[3] = str(tmp_path / "3.png")
    Image.fromarray(pixels()[3]).save(urls[3])
    whole = embedded(tmp_path / "out", source=ImageSet(urls))
    np.testing.assert_allclose(
        whole.array(), embed(model(), ImageSet(pixels())), atol=1e-6
    )
    assert whole.ids == whole.columns["path"] == urls
    memory.pipe_file(urls[7], b"not an image")
    with pytest.raises(ValueError, match=f"'{urls[7]}' cannot be decoded"):
        embedded(tmp_path / "bad", source=ImageSet(urls))
    memory.rm_file(urls[7])
    with pytest.raises(OSError, match="downloaded: FileNotFound.*07.png"):
        embedded(tmp_path / "bad", source=ImageSet(urls))


def test_embeddings_that_cannot_be_stored_raise(tmp_path):
    network = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
    x = np.ones((COUNT, 2), "float32")
    x[8, 0] = 65520
    with pytest.raises(ValueError, match="65504.*row 8, 'n8', has 65520.*fl"):
        ids = [f"n{row}" for row in range(COUNT)]
        source = ArraySet(x, ids=ids)
        embedded(tmp_path / "a", network, source, dtype="float16")
    assert embedded(tmp_path / "b", network, x).array()[8, 0] == 65520
    inputs = keras.Input((2,))
    network = keras.Model(inputs, 1 / (inputs - 7))
    x[17, 1] = 7
    with pytest.raises(ValueError, match="finite.*row 17, '17', has inf"):
        embedded(tmp_path / "c", network, x)


def test_repeated_ids_become_a_column(tmp_path, caplog):
    source = ImageSet(pixels(), ids=["a", "b", "b", "c", "a"] + ["d"] * 18)
    with caplog.at_level("INFO", "keras_dml"):
        whole = embedded(tmp_path, source=source)
    assert "Ids of the 23 examples repeat" in caplog.text
    assert whole.ids == [str(row) for row in range(COUNT)]
    assert whole.columns["source"] == list(source.ids)
