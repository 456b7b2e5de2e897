"""Tests of ImageSet."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import ImageSet, View, concatenate, eval_batches, pipeline
from tests.data.small_images import LABELS, noise, sampler_of


def pixels(count: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("shape", "channels"), [((5, 4), 1), ((5, 4, 1), 1), ((5, 4, 3), 3)]
)
def test_pixels_have_labels_and_channels(
    shape: tuple[int, ...], channels: int
) -> None:
    large = [2**24, 2**24 + 1, 2**62 + 1]
    assert ImageSet(["a", "b", "c"], large).labels.tolist() == large
    images = ImageSet(pixels(4, *shape), [7, 2, 7, -1])
    assert len(images) == 4
    assert images.channels == channels
    assert images.paths is None
    assert images.classes.tolist() == [-1, 2, 7]
    assert images.num_classes == 3
    assert images.labels.dtype == np.int64
    assert images.read(1).shape == (5, 4, channels)
    assert repr(images) == (
        f"ImageSet(4 images of 3 classes, {'×'.join(map(str, shape))} pixels)"
    )


def test_files_have_paths_and_names(tmp_path: Path) -> None:
    array = pixels(1, 5, 4, 3)[0]
    Image.fromarray(array).save(tmp_path / "a.png")
    images = ImageSet([tmp_path / "a.png", "b.png"], [0, 1], names=["x", "y"])
    assert images.paths == (str(tmp_path / "a.png"), "b.png")
    assert images.images == images.paths
    assert images.pixels is None
    assert images.channels is None
    np.testing.assert_array_equal(images.read(0), array)
    assert images.select([1]).paths == ("b.png",)
    assert ImageSet(np.array(["a", "b"]), [0, 1]).paths == ("a", "b")
    assert dict(images.select([1]).names) == {1: "y"}


def test_select_keeps_names_and_ids() -> None:
    array = pixels(3, 2, 2)
    images = ImageSet(array, [5, 6, 5], names={5: "five"}, ids="abc")
    for rows in ([2, 0], np.array([2, 0], np.uint8)):
        chosen = images.select(rows)
        np.testing.assert_array_equal(chosen.images, array[[2, 0]])
        assert chosen.labels.tolist() == [5, 5]
        assert chosen.ids == ("c", "a")
        assert chosen.names[5] == "five"
    assert images.select(images.labels == 5).labels.tolist() == [5, 5]
    assert len(images.select([])) == 0
    with pytest.raises(IndexError):
        images.select([3])
    with pytest.raises(ValueError, match="mask of 3 booleans"):
        images.select([True, False])
    with pytest.raises(ValueError, match="rows of dtype float64"):
        images.select([0.0])


def test_image_set_is_immutable() -> None:
    labels = np.array([0, 1])
    images = ImageSet(pixels(2, 2, 2), labels)
    labels[0] = 9
    assert images.labels.tolist() == [0, 1]
    for array in (images.labels, images.images):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        images.labels = labels  # type: ignore[misc]
    with pytest.raises(TypeError):
        images.names[0] = "a"  # type: ignore[index]


@pytest.mark.parametrize(
    "labels",
    [
        [0.0, 1.0],
        [True, False],
        [[0, 1], [1, 0]],
        [None, 1],
        [0, 2**63],
        np.array([0, 1], object),
    ],
)
def test_non_integer_labels_raise(labels: object) -> None:
    with pytest.raises(ValueError, match=r"`labels` of ImageSet must .*Rec"):
        ImageSet(["a", "b"], labels)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 4, 4), np.float32),
        np.zeros((2, 4, 4, 4), np.uint8),
        np.zeros((2, 4), np.uint8),
        np.zeros((2, 0, 4, 3), np.uint8),
        [np.zeros((4, 4), np.uint8)] * 2,
        "folder",
    ],
)
def test_unfit_images_raise(images: object) -> None:
    with pytest.raises(ValueError, match=r"`images` of ImageSet must"):
        ImageSet(images, [0, 1])  # type: ignore[arg-type]


def test_concatenate_keeps_names_and_ids() -> None:
    array = pixels(4, 3, 3)
    images = ImageSet(array, [1, 2, 3, 2], names={2: "two"}, ids="abcd")
    parts = (images.select([0, 1]), images.select([2, 3]))
    whole = concatenate(parts)
    np.testing.assert_array_equal(whole.images, array)
    assert whole.labels.tolist() == [1, 2, 3, 2]
    assert dict(whole.names) == {2: "two"}
    assert whole.ids == tuple("abcd")
    files = concatenate([ImageSet(["a"], [0]), ImageSet(["b"], [0], ids="x")])
    assert files.paths == ("a", "b")
    assert files.ids is None


def test_incompatible_sets_cannot_be_concatenated() -> None:
    gray = ImageSet(pixels(1, 2, 2), [0], names={0: "a"})
    for other in (ImageSet(["a"], [0]), ImageSet(pixels(1, 3, 2), [0])):
        with pytest.raises(ValueError, match="pixels of one size"):
            concatenate([gray, other])
    with pytest.raises(ValueError, match="named 'a' and 'b'"):
        concatenate([gray, ImageSet(pixels(1, 2, 2), [0], names={0: "b"})])


def test_relabeled_numbers_classes_from_zero() -> None:
    images = ImageSet(
        ["a", "b", "c"],
        [2**40, 3, 2**40],
        names={3: "three", 2**40: "many"},
        ids="xyz",
        boxes=[[0, 0, 1, 1]] * 3,
    )
    numbered = images.relabeled()
    assert numbered.labels.tolist() == [1, 0, 1]
    assert dict(numbered.names) == {0: "three", 1: "many"}
    assert numbered.paths == images.paths
    assert numbered.ids == images.ids
    np.testing.assert_array_equal(numbered.boxes, images.boxes)
    assert numbered.relabeled().labels.tolist() == [1, 0, 1]
    gray = ImageSet(pixels(2, 3, 3), [9, 5])
    assert gray.relabeled().labels.tolist() == [1, 0]
    np.testing.assert_array_equal(gray.relabeled().images, gray.images)


def test_groups_are_selected_and_joined() -> None:
    images = ImageSet(np.zeros((4, 2, 2), "uint8"), [5, 5, 7, 9])
    assert not images.groups
    grouped = images.with_groups(
        {"shop": ["b", "a", "b", "c"], "year": [3] * 4}
    )
    assert grouped.groups["shop"].tolist() == [1, 0, 1, 2]
    assert grouped.select([3, 0]).groups["shop"].tolist() == [2, 1]
    for same in (
        grouped.relabeled(),
        grouped.with_labels(None),
        pickle.loads(pickle.dumps(grouped)),
    ):
        assert same.groups["shop"].tolist() == [1, 0, 1, 2]
    twice = concatenate((grouped, images.with_groups({"year": [4] * 4})))
    assert list(twice.groups) == ["year"]
    assert twice.groups["year"].tolist() == [3] * 4 + [4] * 4


@pytest.mark.parametrize(
    "group", [[1, 2], [0.5] * 4, None, [{1}, {2}, {1}, {1, 2}]]
)
def test_unfit_groups_raise(group: object) -> None:
    images = ImageSet(np.zeros((4, 2, 2), "uint8"), [5, 5, 7, 9])
    with pytest.raises(ValueError, match="with_groups"):
        images.with_groups({"shop": group})


PIXELS = noise(20, 16, 3)
BOXES = np.array([[i % 4, i % 5, i % 4 + 11, i % 5 + 12] for i in range(24)])
PARTS = np.stack(
    [x[t:b, left:r] for x, (left, t, r, b) in zip(PIXELS, BOXES, strict=True)]
)


@pytest.fixture
def boxed_paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{i}.png" for i in range(len(PIXELS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def test_boxes_are_read_selected_and_joined(boxed_paths: list[Path]) -> None:
    images = ImageSet(boxed_paths, LABELS, boxes=BOXES)
    np.testing.assert_array_equal(images.read(7), PARTS[7])
    chosen = images.select([9, 3])
    np.testing.assert_array_equal(chosen.read(1), PARTS[3])
    joined = concatenate([chosen, images])
    np.testing.assert_array_equal(joined.read(2 + 5), PARTS[5])
    with pytest.raises(ValueError, match="1 of 2 with boxes"):
        concatenate([images, ImageSet(boxed_paths, LABELS)])


@pytest.mark.slow
def test_pipeline_of_boxes_equals_that_of_crops(
    boxed_paths: list[Path],
) -> None:
    sources = (
        ImageSet(boxed_paths, LABELS, boxes=BOXES),
        ImageSet(PARTS, LABELS),
    )
    boxed, parts = (
        list(
            pipeline(
                x, sampler_of(x), 9, crop="random_resized", flip=True
            ).as_numpy_iterator()
        )
        for x in sources
    )
    for (x, y), (expected, same) in zip(boxed, parts, strict=True):
        np.testing.assert_array_equal(y["index"], same["index"])
        np.testing.assert_allclose(x, expected, atol=1e-3)


def test_boxes_are_clipped_to_the_image(
    boxed_paths: list[Path],
) -> None:
    images = ImageSet(boxed_paths[:1], [0], boxes=[[10, 4, 99, 99]])
    np.testing.assert_array_equal(images.read(0), PIXELS[0, 4:, 10:])
    (seen,) = eval_batches(images, View((6, 6), 3, 6))
    expected = View((6, 6), 3, 6).apply(PIXELS[0, 4:, 10:])
    np.testing.assert_allclose(seen[0], expected, atol=1e-3)


def test_box_outside_of_the_image_raises(boxed_paths: list[Path]) -> None:
    boxes = BOXES.copy()
    boxes[5] = [16, 0, 20, 4]
    images = ImageSet(boxed_paths, LABELS, boxes=boxes)
    message = r"\(16, 0, 20, 4\) is outside of the image file .*5\.png"
    with pytest.raises(ValueError, match=f"{message}.*16 pixels wide and 20"):
        images.read(5)
    with pytest.raises(tf.errors.OpError, match=message):
        list(eval_batches(images, View((8, 8), 3)))


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([[0, 0, 4, 4]] * 3, "3 boxes, 2 images"),
        ([[0, 0, 4], [0, 0, 4]], r"shape \(2, 3\)"),
        ([[0.0, 0, 4, 4]] * 2, "dtype float64"),
        ([[0, 0, 4, 4], [4, 0, 4, 4]], r"\[4, 0, 4, 4\] in row 1"),
        ([[0, 5, 4, 4], [0, 0, 4, 4]], r"\[0, 5, 4, 4\] in row 0"),
        ([[-1, 0, 4, 4], [0, 0, 4, 4]], r"\[-1, 0, 4, 4\] in row 0"),
    ],
)
def test_unfit_boxes_raise(boxes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageSet(["a", "b"], [0, 1], boxes=boxes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`boxes` of ImageSet require files"):
        ImageSet(PIXELS, LABELS, boxes=BOXES)
