"""Tests of sources of records: Hugging Face, Grain, lists, and other loaders.

Each library is asked for the same images, so that each must give the same set.
"""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from keras_dml import data

PIXELS = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
LABELS = [0, 0, 1, 1, 2, 2]
NAMES = ["ant", "bee", "cat"]


def check(examples: data.ArraySet) -> None:
    np.testing.assert_array_equal(examples.inputs(...), PIXELS)
    np.testing.assert_array_equal(examples.labels, LABELS)
    picked = examples.select([5, 0])
    np.testing.assert_array_equal(picked.inputs([1, 0]), PIXELS[[0, 5]])


def write_folder(root: Path) -> Path:
    for row, label in enumerate(LABELS):
        (root / NAMES[label]).mkdir(parents=True, exist_ok=True)
        file = root / NAMES[label] / f"{row}.png"
        Image.fromarray(PIXELS[row]).save(file)
    return root


def test_list_of_dicts_is_read() -> None:
    records = [
        {"image": PIXELS[i], "label": NAMES[label]}
        for i, label in enumerate(LABELS)
    ]
    examples = data.from_source(records, "image", "label")
    check(examples)
    assert examples.names == dict(enumerate(NAMES))


def test_tuples_functions_and_several_inputs_are_read() -> None:
    records = list(zip(PIXELS, LABELS, strict=True))
    examples = data.from_source(
        records, {"image": 0, "mean": lambda x: x[0].mean()}, 1
    )
    inputs = examples.inputs([3])
    np.testing.assert_array_equal(inputs["image"], PIXELS[[3]])
    assert inputs["mean"] == PIXELS[3].mean()
    assert data.from_source(records, 0).labels is None


def test_hugging_face_dataset_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", os.fspath(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=NAMES)
    )
    images = [Image.fromarray(x) for x in PIXELS]
    pets = datasets.Dataset.from_dict(
        {"image": images, "label": LABELS}, features=features
    )
    examples = data.from_source(pets, "image", "label")
    check(examples)
    assert examples.names == dict(enumerate(NAMES))


def test_grain_dataset_is_read() -> None:
    grain = pytest.importorskip("grain")
    source = grain.MapDataset.source(list(zip(PIXELS, LABELS, strict=True)))
    mapped = source.map(lambda record: {"image": record[0], "y": record[1]})
    check(data.from_source(mapped, "image", "y"))


def test_image_dataset_from_directory_is_read(tmp_path) -> None:
    loaded = keras.utils.image_dataset_from_directory(
        write_folder(tmp_path),
        image_size=(4, 5),
        batch_size=4,
        shuffle=False,
        verbose=False,
    )
    examples = data.from_dataset(loaded, names=loaded.class_names)
    check(examples)
    assert examples.names == dict(enumerate(NAMES))


def test_pillow_images_are_turned_upright() -> None:
    stored = Image.fromarray(PIXELS[0]).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    stored.info["exif"] = exif.tobytes()
    examples = data.from_source([{"image": stored}], "image")
    np.testing.assert_array_equal(examples.inputs([0])[0], PIXELS[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], "x"), "must not be empty"),
        (({"train": [1]}, "x"), r'source\["train"\]'),
        ((iter([1]), "x"), "list_iterator.*from_dataset"),
        (([{"image": 1.0}], "imaeg"), r"'imaeg'.*\['image'\].*'image'"),
        (([{"image": 1.0}], "image", "y"), "must have the field 'y'"),
        (([{"x": object()}], "x"), "numbers or strings"),
        (([{"x": 1.0, "y": 0.5}], "x", "y"), "`labels` of from_source"),
    ],
)
def test_unfit_sources_raise(arguments, message) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        data.from_source(*arguments)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([1, 2], r"\(1,\) in row 0 and \(2,\) in row 1"),
        ([0.5], "one type. Received: int64 in row 0 and float64 in row 1"),
        ([[1], [2, 3]], "rows of equal length"),
        (["a"], "int64 in row 0 and <U1 in row 1"),
    ],
)
def test_row_unlike_the_first_raises(second, message) -> None:
    examples = data.from_source([{"x": [1]}, {"x": second}], "x")
    with pytest.raises(ValueError, match=message):
        examples.inputs(...)


@pytest.mark.parametrize("mode", ["L", "1", "LA"])
def test_gray_images_become_rgb_among_color_images(mode: str, tmp_path) -> None:
    """`image_folder` takes both; so do records, in Pillow's images."""
    pixels = np.random.default_rng(0).integers(0, 255, (4, 4, 3), np.uint8)
    color = Image.fromarray(pixels)
    gray = color.convert(mode)
    records = [{"image": x, "label": i} for i, x in enumerate([color, gray])]
    images = data.from_source(records, "image", "label").inputs(...)
    assert (images.shape, images.dtype) == ((2, 4, 4, 3), np.uint8)
    np.testing.assert_array_equal(images[0], pixels)
    expected = np.asarray(gray.convert("L"))
    np.testing.assert_array_equal(images[1], np.stack([expected] * 3, -1))
    with pytest.raises(ValueError, match=r'\.convert\("RGB"\)'):
        data.from_source(records[::-1], "image", "label").inputs(...)
    whole = data.from_source(
        records[::-1], lambda record: record["image"].convert("RGB")
    )
    assert whole.inputs(...).shape == (2, 4, 4, 3)
    arrays = [{"x": np.zeros((4, 3))}, {"x": np.zeros((4, 1))}]
    with pytest.raises(ValueError, match="resizes, crops or pads it"):
        data.from_source(arrays, "x").inputs(...)
