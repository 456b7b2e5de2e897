"""Tests of sets of tensorflow_datasets, prepared as it does, but small."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from keras_dml.data import tfds_images, tfds_splits
from tests.data.archives.writing import HEIGHT, PIXELS, WIDTH

COUNTS = {
    "train classes": 3,
    "train images": 6,
    "test classes": 3,
    "test images": 6,
}


def encoded(number: int) -> bytes:
    """PNG, in which the number of the image can be read."""
    pixels = PIXELS.copy()
    pixels[..., 2] = number
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def numbers(images: Any) -> list[int]:
    return [int(images.read(row)[0, 0, 2]) for row in range(len(images))]


def builder(folder: Path, by_class: bool, images: int = 2) -> Any:
    """A data set of two parts of six images, prepared by the library.

    Both parts have every class, as those for classification; with
    `by_class` the second part has others. A record has two images, of which
    one cannot be decoded, or only the other.
    """
    import tensorflow_datasets as tfds

    label = "class_id" if by_class else "label"
    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        label: tfds.features.ClassLabel(num_classes=6),
        "unwanted": tfds.features.Image(shape=(None, None, 3)),
    }
    if images == 1:
        del features["unwanted"]
    if not by_class:
        features["bbox"] = tfds.features.BBoxFeature()

    def examples(part: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for i in range(6):
            example = {
                "image": io.BytesIO(encoded(10 * part + i)),
                label: i // 2 + 3 * part if by_class else i,
                "unwanted": io.BytesIO(b"cannot be decoded"),
                # Rows 2 to 6, columns 3 to 10, as fractions.
                "bbox": tfds.features.BBox(
                    2 / HEIGHT, 3 / WIDTH, 6 / HEIGHT, 10 / WIDTH
                ),
            }
            yield str(i), {name: example[name] for name in features}

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

    made = Small(data_dir=folder)
    made.download_and_prepare()
    return made


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`tfds_splits` of small sets; it counts what is loaded."""
    tfds = pytest.importorskip("tensorflow_datasets")
    loads = []

    def fake(name: str, *, split: str, data_dir: Any, **options: Any) -> Any:
        loads.append((name, split))
        by_class = name == "stanford_online_products"
        made = builder(tmp_path / name, by_class)
        return made.as_dataset(split=split, **options)

    monkeypatch.setattr(tfds, "load", fake)

    def run(name: str, counts: Any = COUNTS, **options: Any) -> Any:
        cache = tmp_path / "cache"
        return tfds_splits(name, counts=counts, cache=cache, **options)

    run.loads = loads  # type: ignore[attr-defined]
    return run


def test_parts_are_joined_and_split_by_class(load: Any) -> None:
    splits = load("caltech_birds2011")
    assert splits.name == "cub200"
    assert splits.trainval.classes.tolist() == [1, 2, 3]
    # The library shuffles them once.
    shown = numbers(splits.test)
    assert sorted(shown) == [3, 4, 5, 13, 14, 15]
    assert splits.test.labels.tolist() == [x % 10 + 1 for x in shown]
    assert splits.test.boxes is None
    # The second time, the files are there.
    again = load("caltech_birds2011")
    assert again.test.paths == splits.test.paths
    assert load.loads == [(load.loads[0][0], x) for x in ("train", "test")]


@pytest.mark.parametrize(
    ("name", "box"),
    [("caltech_birds2011", [3, 2, 10, 6]), ("cars196", [2, 1, 10, 6])],
)
def test_cropped(load: Any, name: str, box: list[int]) -> None:
    splits = load(name, cropped=True)
    assert splits.test.boxes.tolist() == [box] * 6
    left, top, right, bottom = box
    np.testing.assert_array_equal(
        splits.test.read(0)[..., :2], PIXELS[top:bottom, left:right, :2]
    )


def test_products_are_split_already(load: Any) -> None:
    splits = load("stanford_online_products")
    assert splits.trainval.classes.tolist() == [1, 2, 3]
    assert splits.test.classes.tolist() == [4, 5, 6]
    assert sorted(numbers(splits.test)) == [10, 11, 12, 13, 14, 15]
    with pytest.raises(ValueError, match="`cropped` of tfds_splits"):
        load("stanford_online_products", cropped=True)


def test_counts_and_names(load: Any) -> None:
    with pytest.raises(ValueError, match=r"12 train images \(of 8,054\)"):
        load("cars196", counts=None)
    assert load("cars196", counts={}).test.num_classes == 3
    with pytest.raises(ValueError, match="`name` of tfds_splits .*mnist"):
        load("mnist")


def test_an_unpacking_that_was_cut_short_is_made_again(load, tmp_path) -> None:
    load("cars196")
    (tmp_path / "cache" / "cars196" / "test" / "images.json").unlink()
    load("cars196")
    assert len(load.loads) == 3
    (tmp_path / "cache" / "cars196" / "test" / "000000.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"000000\.jpg"):
        load("cars196")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set "small", with one feature that is an image; a cache."""
    tfds = pytest.importorskip("tensorflow_datasets")
    made = builder(tmp_path / "small", by_class=True, images=1)
    known = {"small": made, "two": builder(tmp_path / "two", by_class=False)}
    monkeypatch.setattr(tfds, "builder", lambda name, **_: known[name])
    return tmp_path / "cache"


def test_images_of_any_set(small: Path) -> None:
    images = tfds_images("small", "test", cache=small)
    shown = numbers(images)
    assert sorted(shown) == list(range(10, 16))
    assert images.labels.tolist() == [x % 10 // 2 + 3 for x in shown]
    assert images.names[5] == "5"
    part = tfds_images("small", "test[:2]", cache=small)
    assert numbers(part) == shown[:2]
    # The second time, the files are there.
    assert tfds_images("small", "test", cache=small).paths == images.paths


def test_images_of_a_set_with_several_a_record(small: Path) -> None:
    with pytest.raises(ValueError, match="one image per record.*'unwanted'"):
        tfds_images("two", "test", cache=small)
