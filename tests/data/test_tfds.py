"""Small sets prepared by tensorflow_datasets itself."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from keras_dml.data import tfds_images
from tests.data.archive_files import PIXELS


def encoded(number: int) -> bytes:
    """Encodes the image's number in a PNG."""
    pixels = PIXELS.copy()
    pixels[..., 2] = number
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def numbers(images: Any) -> list[int]:
    return [int(images.read(row)[0, 0, 2]) for row in range(len(images))]


def builder(folder: Path, more: tuple[str, ...] = ()) -> Any:
    """A data set of two parts of six images, prepared by the library."""
    import tensorflow_datasets as tfds

    features = {
        "class_id": tfds.features.ClassLabel(num_classes=6),
        **{
            name: tfds.features.Image(shape=(None, None, 3))
            for name in ("image", *more)
        },
    }

    def examples(part: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for i in range(6):
            example = {
                name: io.BytesIO(encoded(10 * part + i)) for name in features
            }
            yield str(i), {**example, "class_id": i // 2 + 3 * part}

    class Small(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        code_path = None  # There is no folder with its checksums.

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": examples(0), "test": examples(1)}

        def _generate_examples(self) -> Any:
            raise NotImplementedError

    small = Small(data_dir=folder)
    small.download_and_prepare()
    return small


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set "small", and "two" with two images a record; a cache."""
    tfds = pytest.importorskip("tensorflow_datasets")
    builders = {
        "small": builder(tmp_path / "small"),
        "two": builder(tmp_path / "two", ("unwanted",)),
    }
    monkeypatch.setattr(tfds, "builder", lambda name, **_: builders[name])
    return tmp_path / "cache"


def test_images_are_written_once(cache: Path) -> None:
    images = tfds_images("small", "test", cache=cache)
    shown = numbers(images)  # The library shuffles them once.
    assert sorted(shown) == list(range(10, 16))
    assert images.labels.tolist() == [x % 10 // 2 + 3 for x in shown]
    assert images.names[5] == "5"
    part = tfds_images("small", "test[:2]", cache=cache)
    assert numbers(part) == shown[:2]
    written = Path(images.paths[0])
    before = written.stat().st_mtime_ns
    assert tfds_images("small", "test", cache=cache).paths == images.paths
    assert written.stat().st_mtime_ns == before


def test_interrupted_unpacking_starts_again(cache: Path) -> None:
    images = tfds_images("small", "test", cache=cache)
    written = Path(images.paths[0])
    written.unlink()
    with pytest.raises(FileNotFoundError, match=r"000000\.jpg"):
        tfds_images("small", "test", cache=cache)
    (written.parent / "images.json").unlink()
    again = tfds_images("small", "test", cache=cache)
    assert numbers(again) == numbers(images)


def test_records_must_have_one_image(cache: Path) -> None:
    with pytest.raises(ValueError, match="one image per record.*'unwanted'"):
        tfds_images("two", "test", cache=cache)
