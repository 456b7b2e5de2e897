"""Embedding into a folder of shards: what is embedded, kept, gone on with."""

import functools
import pickle
import resource
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest

from keras_dml.data import ArraySet, ImageSet
from keras_dml.embedding import (
    EmbeddingShards,
    embed,
    embed_shards,
    shard_work,
    storage,
    write_shards,
)
from keras_dml.embedding.on_ray import RayActors
from keras_dml.embedding.workers import InProcess
from keras_dml.utils.files import atomic_file

COUNT = 23


@functools.cache
def model(seed: int = 0) -> keras.Model:
    """A network, which no test changes."""
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
    """Images in files, of which some are none."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for row, image in enumerate(pixels()):
        path = folder / f"{row:02d}.png"
        Image.fromarray(image).save(path)
        if row in bad:
            path.write_bytes(b"not an image")
    return ImageSet(sorted(folder.iterdir()), np.arange(COUNT) % 4)


def shards(folder: Path) -> dict[str, int]:
    """When each shard was written."""
    return {x.name: x.stat().st_mtime_ns for x in folder.glob("*.parquet")}


def embedded(folder, network=None, given=None, **kwargs) -> EmbeddingShards:
    network = model() if network is None else network
    given = examples() if given is None else given
    options = {"rows_per_shard": 5} | kwargs
    return embed_shards(network, given, folder, **options)


def test_it_is_what_embed_makes(tmp_path):
    network = model()
    found = embedded(tmp_path / "out", network, batch_size=4)
    np.testing.assert_allclose(
        found.array(), embed(network, examples()), atol=1e-6
    )
    assert found.num_shards == 5
    np.testing.assert_array_equal(found.labels, examples().labels)
    assert found.names == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert found.model is not None and found.model.difference(
        EmbeddingShards(tmp_path / "out", verify=True).model
    ) == ""  # fmt: skip
    assert found.images_per_second > 0
    names = {x.name for x in (tmp_path / "out").iterdir()}
    assert names - set(shards(tmp_path / "out")) == {"_manifest.json", ".lock"}


@pytest.mark.slow
def test_sets_of_all_kinds(tmp_path):
    network = model()
    x = pixels()[..., None].astype("float32")
    arrays = ArraySet(x, ids=[f"n{row}" for row in range(COUNT)])
    expected = embed(network, arrays)
    for number, given in enumerate(
        (
            arrays,
            x,
            (x, np.arange(COUNT)),
            files(tmp_path / "images"),
            ImageSet(pixels()),
        )
    ):
        found = embedded(tmp_path / str(number), network, given)
        np.testing.assert_allclose(found.array(), expected, atol=1e-6)
    assert EmbeddingShards(tmp_path / "0").ids[3] == "n3"
    assert EmbeddingShards(tmp_path / "2").labels[3] == 3
    by_path = EmbeddingShards(tmp_path / "3")
    assert by_path.ids[3] == "03.png"
    assert by_path.columns["path"][3] == str(tmp_path / "images" / "03.png")


def test_a_model_file_will_do(tmp_path):
    network = model()
    network.save(tmp_path / "model.keras")
    found = embedded(tmp_path / "out", str(tmp_path / "model.keras"))
    np.testing.assert_array_equal(found.array(), embed(network, examples()))


@pytest.mark.slow
def test_an_object_store():
    network = model()
    found = embedded("memory://embed_shards/a/b", network)
    np.testing.assert_allclose(
        found.array(), embed(network, examples()), atol=1e-6
    )
    again = embedded("memory://embed_shards/a/b", network)
    assert again.digest == found.digest
    with pytest.raises(FileExistsError, match="with different weights"):
        embedded("memory://embed_shards/a/b", model(seed=1))
    with pytest.raises(NotADirectoryError, match="_manifest.json' must be a"):
        embedded("memory://embed_shards/a/b/_manifest.json")


def stopping(monkeypatch, number: int, error: BaseException) -> None:
    """Lets a run fail where the shard of a number is written."""
    write = storage.Storage.write

    def failing(self, name, content):
        if name == f"shard-{number:05d}.parquet":
            raise error
        write(self, name, content)

    monkeypatch.setattr(storage.Storage, "write", failing)


def test_it_goes_on_where_it_was(tmp_path, monkeypatch):
    network, out = model(), tmp_path / "out"
    with monkeypatch.context() as patched:
        stopping(patched, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            embedded(out, network)
    before = shards(out)
    assert len(before) == 3
    with pytest.raises(ValueError, match="unfinished run with 3 shards"):
        EmbeddingShards(out)
    found = embedded(out, network, batch_size=7)
    after = shards(out)
    assert {name: after[name] for name in before} == before
    assert found.columns["row"] == list(range(COUNT))
    np.testing.assert_allclose(
        found.array(), embed(network, examples()), atol=1e-6
    )


def test_what_killed_writers_left_is_removed(tmp_path):
    for name in ("shard-00001.parquet", "_manifest.json"):
        with atomic_file(tmp_path / name) as partial:
            partial.write_bytes(b"half")
        (tmp_path / name).rename(partial)
    (tmp_path / ".own.json").write_text("of the user")
    embedded(tmp_path)
    hidden = {x.name for x in tmp_path.glob(".*")}
    assert hidden == {".lock", ".own.json"}


def test_the_same_call_again_does_nothing(tmp_path, monkeypatch):
    network, out = model(), tmp_path / "out"
    embedded(out, network)
    before = {x.name: x.stat().st_mtime_ns for x in out.glob("[!.]*")}
    monkeypatch.setattr(network, "predict_on_batch", network.predict_on_batch)
    embedded(out, network, progress=True)
    assert {x.name: x.stat().st_mtime_ns for x in out.glob("[!.]*")} == before


def test_what_is_missing_or_cut_off_is_made_again(tmp_path):
    network, out = model(), tmp_path / "out"
    digest = embedded(out, network).digest
    before = shards(out)
    (out / "shard-00001.parquet").unlink()
    cut = out / "shard-00002.parquet"
    cut.write_bytes(cut.read_bytes()[:200])
    (out / "shard-00004.parquet").write_bytes(b"")
    assert embedded(out, network).digest == digest
    after = shards(out)
    kept = {f"shard-{i:05d}.parquet" for i in (0, 3)}
    assert {x for x in after if after[x] == before[x]} == kept


OTHERS = {
    "a model with different weights": lambda: {"network": model(seed=1)},
    "a different dtype: 'float16', not 'float32'": lambda: {"dtype": "float16"},
    "different rows_per_shard: 6, not 5": lambda: {"rows_per_shard": 6},
    "different columns": lambda: {"columns": {"a": range(COUNT)}},
    "different number of exam": lambda: {"given": examples().select(range(20))},
    "different labels": lambda: {"given": examples().with_labels(None)},
    "different examples, ids or labels, by their fingerprint": lambda: {
        "given": examples(1)
    },
}


def test_another_run_is_refused(tmp_path):
    embedded(tmp_path)
    before = shards(tmp_path)
    for message, change in OTHERS.items():
        with pytest.raises(
            FileExistsError, match=f"now .*{message}.*--overwrite"
        ):
            embedded(tmp_path, **change())
        assert shards(tmp_path) == before, message
    assert len(embedded(tmp_path, **change(), overwrite=True)) == COUNT
    assert shards(tmp_path) != before


def test_a_shard_of_another_run_is_refused(tmp_path):
    embedded(tmp_path / "a")
    embedded(tmp_path / "b", model(seed=1))
    (tmp_path / "a" / "_manifest.json").unlink()
    name = "shard-00001.parquet"
    with pytest.raises(FileExistsError, match="shards without _manifest"):
        embedded(tmp_path / "a")
    (tmp_path / "b" / name).unlink()
    (tmp_path / "a" / name).rename(tmp_path / "b" / name)
    with pytest.raises(FileExistsError, match=f"{name}.*another run"):
        embedded(tmp_path / "b", model(seed=1))


def test_folders_of_something_else(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file' must be a folder"):
        embedded(tmp_path / "file")
    with pytest.raises(FileExistsError, match="which contains 'file'"):
        embedded(tmp_path)
    with pytest.raises(FileExistsError, match="which contains 'file'"):
        embedded(tmp_path, overwrite=True)
    out = tmp_path / "out"
    embedded(out)
    manifest = out / "_manifest.json"
    later = '"format_version": 2'
    manifest.write_text(
        manifest.read_text().replace('"format_version": 1', later)
    )
    with pytest.raises(ValueError, match="format_version=2.*that wrote it"):
        embedded(out)
    assert later in manifest.read_text()


def test_bad_arguments(tmp_path):
    for options, message in (
        ({"dtype": "int4"}, "`dtype` of embed_shards must be one of"),
        ({"rows_per_shard": 0}, "`rows_per_shard` of embed_shards must be an"),
        ({"batch_size": 0}, "`batch_size` of embed_shards must be an integer"),
        ({"workers": 0}, "`workers` of embed_shards must be an integer"),
        ({"max_bad": -1}, "`max_bad` of embed_shards must be a number"),
        ({"max_bad": 1.5}, "`max_bad` of embed_shards must be a number"),
        ({"columns": {"row": [1]}}, "reserved names id, .*'row'. Rename it"),
        ({"columns": {"a": [1]}}, "Received: 1 of 'a' for 23"),
        ({"columns": {"a": [1, "x"] * 11 + [2]}}, "single type.*'a'"),
        ({"given": examples().select([])}, "must not be empty"),
        ({"given": "images/"}, "`examples` of embed_shards must be an Image"),
    ):
        with pytest.raises(ValueError, match=message):
            embedded(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_limit_of_the_system(tmp_path):
    """Here a write of the system itself fails."""
    x, out = np.ones((100, 64), np.float32), tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, before[1]))
    try:
        with pytest.raises(OSError, match="shard-00000.*too large.*to contin"):
            write_shards(x, out, rows_per_shard=50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not shards(out)
    assert len(write_shards(x, out, rows_per_shard=50)) == 100


@pytest.mark.engines
@pytest.mark.slow
# Ray's own, of files and sockets that it leaves to the collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_actors_of_ray_embed(tmp_path):
    pytest.importorskip("ray")
    run = RayActors.run
    with mock.patch.object(RayActors, "run", autospec=True) as spied:
        spied.side_effect = run
        found = embedded(tmp_path, workers=1, ray="local")
    spied.assert_called_once()
    assert found.columns["row"] == list(range(COUNT))
    expected = embed(model(), examples())
    np.testing.assert_allclose(found.array(), expected, atol=1e-6)


@pytest.mark.slow
def test_two_writers(tmp_path):
    with storage.Storage(tmp_path).lock("embedding"):
        with pytest.raises(BlockingIOError, match="Another embedding.*process"):
            embedded(tmp_path)
    assert len(embedded(tmp_path)) == COUNT


@pytest.mark.slow
def test_bad_files_are_named_and_passed_over(tmp_path):
    network = model()
    images = files(tmp_path / "images", bad=(0, 4, 5, 6, 7, 8, 9, 22))
    (tmp_path / "images" / "13.png").unlink()
    found = embedded(tmp_path / "out", network, images, max_bad=9)
    gone = [0, 4, 5, 6, 7, 8, 9, 13, 22]
    assert [x.row for x in found.bad] == gone
    assert [x.id for x in found.bad] == [f"{row:02d}.png" for row in gone]
    assert "cannot be decoded" in found.bad[0].error
    assert "No such file" in found.bad[7].error
    kept = [row for row in range(COUNT) if row not in gone]
    assert found.columns["row"] == kept
    assert [x.rows for x in found][:3] == [
        slice(0, 3), slice(3, 3), slice(3, 7),
    ]  # fmt: skip
    np.testing.assert_array_equal(found.labels, images.labels[kept])
    np.testing.assert_allclose(
        found.array(), embed(network, images.select(kept)), atol=1e-6
    )


@pytest.mark.slow
def test_too_many_bad_files(tmp_path):
    network, out = model(), tmp_path / "out"
    images = files(tmp_path / "images", bad=(1, 3, 8))
    with pytest.raises(
        ValueError, match=r"`max_bad`.*Received: 2, but 3 .*Row 1: .*01.png.*"
    ):
        embedded(out, network, images, max_bad=0.1)
    assert len(shards(out)) == 2
    with pytest.raises(ValueError, match="`max_bad`.*Received: 0, but 2"):
        embedded(out, network, images, max_bad=0)
    before = shards(out)
    assert len(embedded(out, network, images)) == 20
    after = shards(out)
    assert {name: after[name] for name in before} == before
    files(tmp_path / "images")  # They are mended.
    assert len(embedded(out, network, images, max_bad=0)) == COUNT
    mended = shards(out)
    assert {x for x in after if mended[x] == after[x]} == {
        f"shard-{i:05d}.parquet" for i in (2, 3, 4)
    }


@pytest.mark.slow
def test_all_files_are_bad(tmp_path):
    images = files(tmp_path / "images", bad=tuple(range(COUNT)))
    with pytest.raises(ValueError, match="Received: 10, but 15 could"):
        embedded(tmp_path / "out", given=images)
    found = embedded(tmp_path / "out", given=images, max_bad=1.0)
    assert (found.shape, len(found.bad)) == ((0, 3), COUNT)
    assert found.ids == [] and found.labels.shape == (0,)
    assert [x.embeddings.shape for x in found] == [(0, 3)] * 5
    with pytest.raises(ValueError, match="at least one.*23 examples could"):
        found.array()


def test_rows_of_arrays_that_are_bad(tmp_path):
    x = pixels()[..., None].astype("float32")
    x[[3, 12]] = np.nan
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = embedded(tmp_path / "out", given=mapped)
    assert [x.row for x in found.bad] == [3, 12]
    assert len(found) == COUNT - 2


def test_a_model_that_fails_is_no_bad_example(tmp_path, monkeypatch):
    network = model()
    images = files(tmp_path / "images")

    def failing(*_, **__):
        raise ValueError("the model is to blame")

    for given in (images, examples()):
        with monkeypatch.context() as patched:
            out = tmp_path / type(given).__name__
            patched.setattr(
                shard_work, "embedded", lambda *_, **__: failing(None)
            )
            with pytest.raises(ValueError, match="the model is to blame"):
                embedded(out, network, given)


def test_embeddings_that_are_not_finite(tmp_path):
    inputs = keras.Input((2,))
    network = keras.Model(inputs, 1 / (inputs - 7))
    x = np.ones((COUNT, 2), "float32")
    x[17, 1] = 7
    with pytest.raises(ValueError, match=r"finite.*row 17, 'n17', has inf"):
        embedded(
            tmp_path / "a",
            network,
            ArraySet(x, ids=[f"n{row}" for row in range(COUNT)]),
        )
    diverged = keras.models.clone_model(model())
    diverged.set_weights([np.full_like(w, np.nan) for w in model().weights])
    with pytest.raises(ValueError, match="`model` of embed_shards must.*finit"):
        embedded(tmp_path / "b", diverged)


def test_embeddings_that_float16_cannot_hold(tmp_path):
    network = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
    x = np.ones((COUNT, 2), "float32")
    x[8, 0] = 65520
    with pytest.raises(ValueError, match="65504.*row 8, '8', has 65520.*fl"):
        embedded(tmp_path / "a", network, x, dtype="float16")
    assert embedded(tmp_path / "b", network, x).array()[8, 0] == 65520


def test_ids_that_repeat_are_a_column(tmp_path, caplog):
    given = ImageSet(pixels(), ids=["a", "b", "b", "c", "a"] + ["d"] * 18)
    with caplog.at_level("INFO", "keras_dml"):
        found = embedded(tmp_path, given=given)
    assert "19 of 23 ids" in caplog.text
    assert found.ids == [str(row) for row in range(COUNT)]
    assert found.columns["source"] == list(given.ids)


def test_a_file_url_is_a_folder_of_this_machine(tmp_path):
    found = embedded(f"file://{tmp_path}/out")
    assert len(found) == COUNT
    assert len(EmbeddingShards(tmp_path / "out")) == COUNT


def test_urls_that_are_only_read(monkeypatch):
    memory = type(storage.Storage("memory://x")._files)

    def refused(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(memory, "pipe_file", refused)
    with pytest.raises(OSError, match="only_read' is read-only"):
        embedded("memory://embed_shards/only_read")


@pytest.mark.slow
def test_relative_paths_are_found_from_anywhere(tmp_path, monkeypatch):
    files(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    images = ImageSet(sorted(map(str, Path("images").iterdir())))
    work = []
    run = InProcess.run

    def elsewhere(self, given, tasks):
        work.append(pickle.dumps((given, list(tasks))))
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        return run(self, *pickle.loads(work[0]))

    monkeypatch.setattr(InProcess, "run", elsewhere)
    network = model()
    found = embedded("out", network, images)
    monkeypatch.chdir(tmp_path)
    assert [str(x) for x in tmp_path.glob("*/*.parquet")]
    assert len(found) == COUNT and not found.bad


def test_models_of_workers_are_the_one_of_the_run(tmp_path):
    run = embedded(tmp_path)._manifest.run
    doubled = keras.layers.Lambda(lambda x: 2 * x)
    for network, message in (
        (keras.Sequential([keras.Input((2,)), doubled]), "workers can load"),
        (model(seed=1), "with different weights.*same versions"),
    ):
        work = shard_work.EmbedShards(network, run, "memory://x", 5)
        with pytest.raises(ValueError, match=message):
            pickle.loads(pickle.dumps(work)).start()
