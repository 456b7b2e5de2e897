"""Images at URLs, embedded into shards."""

import io

import fsspec
import numpy as np
import pytest
from PIL import Image

from keras_dml.data import ImageSet
from keras_dml.embedding import embed, embed_shards, storage
from tests.embedding.test_embed_shards import COUNT, model, pixels

ROOT = "memory://remote_images"


@pytest.fixture
def urls(monkeypatch) -> list[str]:
    monkeypatch.setattr(storage, "_WAITS", (0.0, 0.0))
    files = fsspec.filesystem("memory")
    named = []
    for row, image in enumerate(pixels()):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "PNG")
        named.append(f"{ROOT}/{row:02d}.png")
        files.pipe_file(named[-1].removeprefix("memory:/"), content.getvalue())
    return named


@pytest.mark.slow
def test_they_are_fetched_and_those_that_are_bad_are_named(tmp_path, urls):
    files = fsspec.filesystem("memory")
    files.rm_file("/remote_images/07.png")
    files.pipe_file("/remote_images/08.png", b"not an image")
    # Files of this machine may be among them.
    Image.fromarray(pixels()[3]).save(tmp_path / "3.png")
    urls[3] = str(tmp_path / "3.png")
    network, labels = model(), np.arange(COUNT) % 4
    found = embed_shards(
        network, ImageSet(urls, labels), tmp_path / "out", rows_per_shard=5
    )
    assert [(x.row, x.id) for x in found.bad] == [(7, urls[7]), (8, urls[8])]
    assert f"{urls[7]!r} cannot be downloaded: FileNotF" in found.bad[0].error
    assert f"{urls[8]!r} cannot be decoded" in found.bad[1].error
    kept = np.delete(np.arange(COUNT), [7, 8])
    np.testing.assert_allclose(
        found.array(), embed(network, ImageSet(pixels()[kept])), atol=1e-6
    )
    assert found.columns["path"] == [urls[row] for row in kept]
    np.testing.assert_array_equal(found.labels, labels[kept])


def test_a_network_that_fails_now_and_then(tmp_path, urls, monkeypatch):
    files = fsspec.filesystem("memory")
    failed = set()
    fetch = type(files).cat_file

    def failing(self, path, *arguments, **options):
        if path not in failed:
            failed.add(path)
            raise ConnectionError("reset by peer")
        return fetch(self, path, *arguments, **options)

    monkeypatch.setattr(type(files), "cat_file", failing)
    found = embed_shards(model(), ImageSet(urls), tmp_path / "out", max_bad=0)
    assert len(found) == COUNT == len(failed)


@pytest.mark.slow
def test_a_network_that_is_away(tmp_path, urls, monkeypatch):
    """What was bad is tried again when there was too much of it."""
    files = fsspec.filesystem("memory")

    def failing(self, path, *arguments, **options):
        raise ConnectionError("no route")

    network = model()
    with monkeypatch.context() as patched:
        patched.setattr(type(files), "cat_file", failing)
        with pytest.raises(ValueError, match="Received: 10, but 15.*no route"):
            embed_shards(
                network, ImageSet(urls), tmp_path / "out", rows_per_shard=5
            )
    found = embed_shards(
        network, ImageSet(urls), tmp_path / "out", rows_per_shard=5
    )
    assert len(found) == COUNT


def test_no_room_for_what_is_fetched_is_no_bad_image(
    tmp_path, urls, monkeypatch
):
    def failing(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.Path, "write_bytes", failing)
    with pytest.raises(OSError, match="No space left"):
        embed_shards(model(), ImageSet(urls), tmp_path / "out")


def test_urls_that_cannot_be_read_here(tmp_path):
    images = ImageSet(["nowhere://bucket/1.png"])
    with pytest.raises(ValueError, match="nowhere"):
        embed_shards(model(), images, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_package_that_urls_need_is_asked_for_at_once(tmp_path, monkeypatch):
    known = storage.file_system

    def without(name: str) -> object:
        if name.startswith("s3:"):
            raise ImportError("Install s3fs to access S3")
        return known(name)

    monkeypatch.setattr(storage, "file_system", without)
    images = ImageSet([str(tmp_path / "0.png"), "s3://bucket/1.png"])
    with pytest.raises(ImportError, match="s3fs"):
        embed_shards(model(), images, tmp_path / "out", max_bad=1.0)
    assert not (tmp_path / "out").exists()


def test_a_row_of_no_known_protocol_is_a_bad_one(tmp_path, urls):
    odd = ['=HYPERLINK("http://x")', urls[0], "nowhere://b/1.png", urls[1]]
    found = embed_shards(model(), ImageSet(odd), tmp_path / "out", max_bad=2)
    assert [x.row for x in found.bad] == [0, 2]
    assert repr(odd[0]) in found.bad[0].error
    assert len(found) == 2
    with pytest.raises(ValueError, match="Received: row 0, .*HYPERLINK"):
        embed_shards(model(), ImageSet(odd[::2]), tmp_path / "more")
