"""Tests of parts of files: against Pillow, which decodes them whole."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet, View, eval_batches, pipeline
from keras_dml.data.decode import read_image
from keras_dml.data.encoded import of_file
from keras_dml.export.files import load_files
from tests.conftest import quick
from tests.data.small_images import stored

SIZE = (30, 44)
# Top, left, height, width: larger than `SIZE` by 1 to 3, 4 to 7, 8 to 15 and
# 16 or more, of which the half, a quarter and an eighth are decoded.
WINDOWS = [
    (101, 33, 83, 90),
    (7, 250, 211, 177),
    (55, 3, 300, 360),
    (13, 17, 481, 707),
]


@pytest.fixture(scope="module")
def photograph() -> np.ndarray:
    """Pixels with detail at all scales, (720, 960, 3)."""
    rng = np.random.default_rng(0)
    pixels = np.zeros((720, 960, 3))
    for side in (3, 6, 12, 24, 48, 96):
        coarse = rng.normal(size=(side * 3 // 4 + 1, side, 3))
        for channel in range(3):
            layer = Image.fromarray(coarse[..., channel].astype("float32"))
            layer = layer.resize((960, 720), Image.Resampling.BICUBIC)
            pixels[..., channel] += np.asarray(layer) * 60 / side**0.7
    return (pixels + 128).clip(0, 255).astype(np.uint8)


def by_pillow(path: Path, size: tuple[int, int], where: tuple) -> np.ndarray:
    top, left, height, width = where
    image = Image.fromarray(read_image(path))
    box = (left, top, left + width, top + height)
    return np.asarray(
        image.crop(box).resize(size[::-1], Image.Resampling.BILINEAR)
    )


def windows(path: Path, *regions: tuple, scaled: bool) -> np.ndarray:
    @tf.function(autograph=False)
    def decode() -> tf.Tensor:
        file = of_file(tf.constant(str(path)))
        file = file.scalable() if scaled else file
        both = tf.constant(regions)
        return file.windows(SIZE, both[:, :2], both[:, 2:])

    pixels: np.ndarray = decode().numpy()
    return pixels


def noise_ratio(seen: np.ndarray, expected: np.ndarray) -> float:
    """Peak signal to noise, in dB."""
    error = np.mean((seen.astype(float) - expected.astype(float)) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else np.inf


@pytest.mark.parametrize("orientation", quick([1], [1, 2, 6, 7]))
def test_windows_equal_those_of_the_whole_image(
    tmp_path, photograph, orientation
) -> None:
    path = stored(tmp_path / "a.jpg", photograph, orientation, quality=95)
    exact = windows(path, *WINDOWS, scaled=False)
    for seen, where in zip(exact, WINDOWS, strict=True):
        # Pillow rounds between rows and columns.
        assert abs(seen - by_pillow(path, SIZE, where).astype(int)).max() <= 2
        (scaled,) = windows(path, where, scaled=True)
        assert noise_ratio(scaled, by_pillow(path, SIZE, where)) > 40


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_boxes_equal_crops_of_the_whole_image(
    tmp_path, photograph, subsampling
) -> None:
    path = tmp_path / "a.jpg"
    image = Image.fromarray(photograph[::4, ::4])
    image.save(path, subsampling=subsampling)
    whole = read_image(path)
    decode = tf.function(lambda box: of_file(str(path), box).pixels())
    for left, top in np.random.default_rng(0).integers(0, (236, 176), (50, 2)):
        box = np.array([left, top, left + 37, top + 23])
        expected = whole[top : top + 23, left : left + 37]
        np.testing.assert_array_equal(decode(box), expected)


@pytest.mark.slow
def test_several_windows_are_decoded_at_the_scale_of_the_smallest(
    tmp_path, photograph
) -> None:
    path = stored(tmp_path / "a.jpg", photograph, 6, quality=95)
    both = windows(path, *WINDOWS[2:], scaled=True)
    (smaller,) = windows(path, WINDOWS[2], scaled=True)
    assert abs(both[0].astype(int) - smaller).max() <= 1
    assert noise_ratio(both[1], by_pillow(path, SIZE, WINDOWS[3])) > 40


def test_large_file_is_decoded_at_an_eighth(tmp_path: Path) -> None:
    """Uses lines that vanish at an eighth of the size."""
    lines = np.zeros((960, 960, 3), np.uint8)
    lines[:, ::2] = 255
    path = tmp_path / "lines.jpg"
    Image.fromarray(lines).save(path, quality=100)
    file = of_file(tf.constant(str(path)))
    np.testing.assert_array_equal(file.pixels(), read_image(path))
    seen = file.scalable().resize((60, 60)).numpy().astype(int)
    assert abs(seen - 127.5).max() < 3
    # Twice as long as the result would be less than that.
    at_a_quarter = file.scalable().resize((61, 61)).numpy()
    draft = Image.open(path)
    draft.draft("RGB", (240, 240))
    expected = np.asarray(draft.resize((61, 61), Image.Resampling.BILINEAR))
    assert abs(at_a_quarter - expected.astype(int)).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["png", "webp"])
def test_windows_of_other_formats_match_pillow(
    tmp_path, photograph, extension
) -> None:
    path = tmp_path / f"a.{extension}"
    Image.fromarray(photograph).save(path, lossless=True)
    for seen, where in zip(
        windows(path, *WINDOWS, scaled=True), WINDOWS, strict=True
    ):
        assert abs(seen - by_pillow(path, SIZE, where).astype(int)).max() <= 2


@pytest.mark.slow
@pytest.mark.parametrize("crop", ["random_resized", "random"])
def test_views_of_files_match_views_of_pixels(
    tmp_path, photograph, crop
) -> None:
    paths = [
        str(stored(tmp_path / f"{x}.jpg", photograph, x, quality=95))
        for x in (1, 3, 5, 8)
    ]
    pixels = np.stack([read_image(path) for path in paths])
    labels = [0, 0, 1, 1]
    views = []
    for images in (ImageSet(paths, labels), ImageSet(pixels, labels)):
        sampler = ClassBalanced(
            labels, classes_per_batch=2, images_per_class=2, steps_per_epoch=2
        )
        options = {"crop": crop, "flip": True, "num_views": 2}
        batches = pipeline(images, sampler, size=32, **options)
        views.append(
            [x[k].numpy() for x, _ in batches for k in ("image", "image2")]
        )
    for seen, expected in zip(*views, strict=True):
        assert seen.shape == (4, 32, 32, 3)
        assert noise_ratio(seen, expected) > 40


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_fast_view_is_the_same_everywhere(
    tmp_path: Path, photograph: np.ndarray, channels: int
) -> None:
    paths = [
        stored(tmp_path / f"{x}.jpg", photograph, x, quality=95)
        for x in (1, 6, 7)
    ]
    paths.append(tmp_path / "a.png")
    Image.fromarray(photograph).save(paths[-1])
    images = ImageSet([*map(str, paths)])
    fast, exact = (
        View((70, 60), channels, resize=70, fast=x) for x in (True, False)
    )
    [seen], [whole] = (eval_batches(images, view) for view in (fast, exact))
    served = tf.function(load_files, autograph=False)
    status, served_seen = served([x.read_bytes() for x in paths], fast)
    assert set(status.numpy()) == {b"ok"}
    np.testing.assert_array_equal(served_seen, seen)
    draft = Image.open(paths[0])
    draft.draft("RGB", (240, 180))  # A quarter, at least twice 70 high.
    small = draft.convert("L" if channels == 1 else "RGB").resize(
        (93, 70), Image.Resampling.BILINEAR
    )
    expected = np.atleast_3d(small.crop((16, 0, 76, 70))).astype(int)
    assert abs(seen[0].numpy() - expected).max() <= 2
    for each, other in zip(seen[:3].numpy(), whole[:3].numpy(), strict=True):
        assert 40 < noise_ratio(each, other) < np.inf
    np.testing.assert_array_equal(seen[3], whole[3])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [(8000, 6000), (20_000, 2000)])
def test_large_photographs_need_little_memory(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """Decoding all 48 megapixels would take 144 MB."""
    path = tmp_path / "a.jpg"
    coarse = np.random.default_rng(0).integers(0, 256, (99, 99, 3), np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BOX).save(path)
    labels = np.repeat([0, 1], 4)
    sampler = ClassBalanced(labels, classes_per_batch=2, images_per_class=4)
    images = ImageSet([path] * 8, labels)
    batches = pipeline(images, sampler, size=224, crop="random_resized")
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Sets VmHWM to VmRSS.
    assert len(list(batches)) == sampler.steps
    assert memory("VmHWM") - before < 120_000


def memory(field: str) -> int:
    """Memory of this process, in KB."""
    state = Path("/proc/self/status").read_text()
    return int(state.partition(f"{field}:")[2].split()[0])
