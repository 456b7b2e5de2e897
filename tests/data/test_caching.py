"""Tests of the cache of decoded images: its pixels, places and damage."""

import logging
import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet, pipeline
from keras_dml.data import caching as module
from keras_dml.data.decode import read_image
from keras_dml.data.loading import Decoded, Loader
from tests.data.test_encoded import memory

LABELS = np.repeat([5, 6, 7], 4)
CACHES = ("memory", "disk")

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("KERAS_DML_HOME", str(folder))
    return folder / "decoded"


@pytest.fixture
def mixed(tmp_path: Path) -> ImageSet:
    return write(tmp_path, [(30, 24), (24, 24), (60, 31)])


@pytest.fixture
def alike(tmp_path: Path) -> ImageSet:
    return write(tmp_path, [(40, 30)])


def write(folder: Path, sizes: list[tuple[int, int]]) -> ImageSet:
    """Writes smooth images of several sizes and formats."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(len(LABELS)):
        coarse = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize(sizes[i % len(sizes)])
        if i % 5 == 4:
            image = image.convert("L")
        paths.append(folder / f"{i}.{('jpg', 'png', 'bmp')[i % 3]}")
        image.save(paths[-1])
    return ImageSet(paths, LABELS)


def epochs_of(images: ImageSet, count: int = 2, **options: Any) -> list[Any]:
    sampler = ClassBalanced(
        images.labels, classes_per_batch=2, images_per_class=3
    )
    dataset = pipeline(images, sampler, **{"size": 16, **options})
    return [
        batch for _ in range(count) for batch in dataset.as_numpy_iterator()
    ]


def check_equal(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second) > 0
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixed", {"flip": True}),
        ("alike", {"flip": True}),
        # So large that no file is decoded at a smaller scale.
        (
            "mixed",
            {"crop": "random_resized", "num_views": 2, "size": (16, 31)},
        ),
        (
            "mixed",
            {
                "resize_mode": "longest",
                "resize": 20,
                "flip": True,
                "channels": 1,
            },
        ),
        (
            "alike",
            {"resize_mode": "squash", "resize": 20, "crop": "random_resized"},
        ),
    ],
)
def test_cached_epochs_equal_uncached_ones(request, name, options) -> None:
    images = request.getfixturevalue(name)
    expected = epochs_of(images, **options)
    for cache in CACHES:
        check_equal(epochs_of(images, cache=cache, **options), expected)


@pytest.mark.slow
@pytest.mark.parametrize("cache", CACHES)
def test_cached_files_are_not_read_again(mixed: ImageSet, cache: str) -> None:
    expected = epochs_of(mixed)
    sampler = ClassBalanced(LABELS, classes_per_batch=2, images_per_class=3)
    dataset = pipeline(mixed, sampler, 16, cache=cache)
    for path in mixed.paths or ():
        os.remove(path)
    # An interrupted epoch does no harm.
    for _ in dataset:
        break
    sampler.epoch = 0
    batches = [x for _ in range(2) for x in dataset.as_numpy_iterator()]
    check_equal(batches, expected)


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> Any:
        raise AssertionError("decodes")

    monkeypatch.setattr(module, "_write", write)


@pytest.mark.slow
def test_next_run_reads_the_cache_on_disk(mixed, monkeypatch) -> None:
    expected = epochs_of(mixed, cache="disk")
    forbid_decoding(monkeypatch)
    check_equal(epochs_of(mixed, cache="disk"), expected)
    check_equal(epochs_of(mixed, cache="auto"), expected)
    # Only the crop may differ: other resizing needs another cache.
    assert epochs_of(mixed, cache="disk", crop="center", flip=True)
    for other in (
        {"resize": 17},
        {"channels": 1},
        {"crop": "random_resized"},
        {"resize_mode": "longest"},
        {"resize_mode": "squash"},
    ):
        with pytest.raises(AssertionError, match="decodes"):
            epochs_of(mixed, cache="disk", **other)


@pytest.mark.slow
def test_changed_file_is_decoded_again(mixed: ImageSet, home: Path) -> None:
    epochs_of(mixed, cache="disk")
    path = (mixed.paths or ())[1]
    Image.fromarray(255 - read_image(path)).save(path)
    os.utime(path, ns=(0, 10**18))
    check_equal(epochs_of(mixed, cache="disk"), epochs_of(mixed))
    assert len(list(home.glob("*.pixels"))) == 2


def cut(pixels: Path, index: Path) -> None:
    pixels.write_bytes(pixels.read_bytes()[:-1])


def foreign_index(pixels: Path, index: Path) -> None:
    index.write_bytes(b"\xff\x00 not an index")


@pytest.mark.slow
def test_damaged_cache_is_created_again(mixed, home, caplog) -> None:
    expected = epochs_of(mixed, cache="disk")
    (pixels,), (index,) = home.glob("*.pixels"), home.glob("*.json")
    whole = pixels.read_bytes(), index.read_bytes()
    for damage in (cut, foreign_index):
        damage(pixels, index)
        caplog.clear()
        check_equal(epochs_of(mixed, cache="disk"), expected)
        assert "is damaged and is created again" in caplog.text, damage
        assert (pixels.read_bytes(), index.read_bytes()) == whole, damage


# Pixels of `alike` with a short side of 16: 12 images of 16 × 21 × 3.
SIZE = 12 * 16 * 21 * 3


@pytest.mark.slow
def test_auto_cache_depends_on_free_space_and_is_logged(
    alike, monkeypatch, caplog, home
) -> None:
    caplog.set_level(logging.INFO, "keras_dml")
    expected = epochs_of(alike)
    for free, disk, place in (
        (2 * SIZE, 0, "in memory: 1 MB"),
        (0, SIZE - 1, "not cached: they need 1 MB"),
        (2 * SIZE - 2, SIZE, ".pixels: 1 MB"),
    ):
        monkeypatch.setattr(module, "available_memory", lambda n=free: n)
        monkeypatch.setattr(module, "free_disk", lambda folder, n=disk: n)
        caplog.clear()
        check_equal(epochs_of(alike, cache="auto"), expected)
        assert place in caplog.text
        assert home.exists() == (".pixels" in place)


def test_cache_without_room_raises(alike, monkeypatch) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: SIZE - 1)
    with pytest.raises(ValueError, match="`cache` of pipeline .* 1 MB"):
        epochs_of(alike, cache="memory")
    monkeypatch.setattr(module, "free_disk", lambda folder: SIZE - 1)
    with pytest.raises(OSError, match="`cache` of pipeline .* 1 MB"):
        epochs_of(alike, cache="disk")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_bad_file_raises_and_leaves_no_cache(
    mixed, cache, content, home
) -> None:
    bad = Path((mixed.paths or ())[-1])
    # The head is whole: the image is missed when it is decoded.
    bad.write_bytes(bad.read_bytes()[:60] if content is None else content)
    with pytest.raises(ValueError, match=rf"{bad.name}' cannot be decoded"):
        epochs_of(mixed, cache=cache)
    assert not home.exists() or list(home.iterdir()) == []


def test_images_in_memory_are_not_cached(home: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 18), np.uint8)
    images = ImageSet(pixels, LABELS)
    check_equal(epochs_of(images, 1, cache="disk"), epochs_of(images, 1))
    assert not home.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_iterator_copies_no_pixels(tmp_path: Path) -> None:
    """A captured tensor of this size would be copied for every epoch."""
    flat = np.frombuffer(mmap.mmap(-1, 2 * 10**8), np.uint8)
    shapes = np.array([[10**4, 10**4 - 1, 1], [10**4, 10**4 + 1, 1]])
    loader = Loader(ImageSet(["a", "b"], [0, 0]), Decoded(flat, shapes))
    dataset = tf.data.Dataset.range(2).map(
        lambda row: tf.reduce_sum(loader.image(row)[:2])
    )
    next(iter(dataset))
    before = memory("RssAnon")
    kept = [iter(dataset) for _ in range(4)]
    assert memory("RssAnon") - before < 10**5
    assert len(kept) == 4


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("200", "150", 50), ("900", "150", 300), ("100", "120", 0)]
    + [("max", "150", 300), (None, None, 300)],
)
def test_available_memory_heeds_the_limit_of_a_container(
    tmp_path, monkeypatch, limit, used, expected
) -> None:
    system = SimpleNamespace(available=300)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: system)
    for name, text in (("_LIMIT_FILE", limit), ("_USAGE_FILE", used)):
        path = tmp_path / name
        if text is not None:
            path.write_text(f"{text}\n")
        monkeypatch.setattr(module, name, path)
    assert module.available_memory() == expected


def test_cache_folder_follows_environment_variables(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("KERAS_DML_HOME", str(tmp_path))
    assert module.cache_folder() == tmp_path
    monkeypatch.delenv("KERAS_DML_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_folder() == tmp_path / "keras_dml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert module.cache_folder() == tmp_path / ".cache" / "keras_dml"
