"""Tests of EXIF orientations: in Python, in graphs, and wherever images go."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_dml.data.decode import exif_orientation, read_image
from keras_dml.data.encoded import of_file
from keras_dml.export.files import decode_whole
from tests.data.small_images import stored

ORIENTATIONS = range(1, 9)
RNG = np.random.default_rng(0)
COARSE = Image.fromarray(RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8))
PIXELS = np.asarray(COARSE.resize((30, 23)))


@pytest.fixture(scope="module")
def decode() -> Callable[[Path], np.ndarray]:
    function = tf.function(lambda path: of_file(path).pixels(), autograph=False)
    return lambda path: function(tf.constant(str(path))).numpy()


def tiff(
    *entries: tuple[int, int, int, bytes], order: str = "<", start: int = 8
) -> bytes:
    """An EXIF block: entries are (tag, type, length, value)."""
    head = {"<": b"II*\0", ">": b"MM\0*"}[order]
    block = head + struct.pack(f"{order}I", start) + bytes(start - 8)
    block += struct.pack(f"{order}H", len(entries))
    for tag, kind, length, value in entries:
        block += struct.pack(f"{order}HHI", tag, kind, length)
        block += value.ljust(4, b"\0")
    return block + bytes(4)


def jpeg_with(block: bytes, before: bytes = b"", pad: bytes = b"") -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG")
    segment = b"Exif\0\0" + block
    length = struct.pack(">H", 2 + len(segment))
    start, rest = file.getvalue()[:2], file.getvalue()[2:]
    return start + before + pad + b"\xff\xe1" + length + segment + rest


def png_with(block: bytes, after_pixels: bool = False) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    content = file.getvalue()
    at = len(content) - 12 if after_pixels else 33
    chunk = b"eXIf" + block
    checksum = struct.pack(">I", zlib.crc32(chunk))
    length = struct.pack(">I", len(block))
    return content[:at] + length + chunk + checksum + content[at:]


@pytest.mark.parametrize("extension", ["jpg", "png", "webp", "tif"])
def test_all_cases_are_the_same_pixels(tmp_path, decode, extension) -> None:
    path = tmp_path / f"image.{extension}"
    options = {"lossless": True} if extension == "webp" else {}
    for orientation in ORIENTATIONS:
        stored(path, PIXELS, orientation, **options)
        with Image.open(path) as image:
            expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        assert expected.shape == PIXELS.shape
        if extension != "jpg":
            np.testing.assert_array_equal(expected, PIXELS)
        np.testing.assert_array_equal(read_image(path), expected)
        np.testing.assert_array_equal(decode(path), expected)
        np.testing.assert_array_equal(of_file(str(path)).pixels(), expected)


@pytest.mark.parametrize("order", ["<", ">"])
def test_where_the_tag_may_be(order: str) -> None:
    def number(x: int, size: str = "H") -> bytes:
        return struct.pack(order + size, x)

    other = (271, 2, 4, b"abc")
    shorts = [
        tiff((274, 3, 1, number(6)), order=order),
        tiff(other, (274, 3, 1, number(6)), other, order=order),
        tiff((274, 3, 1, number(6)), order=order, start=40),
        tiff((274, 3, 1, number(6)), (274, 3, 1, number(3)), order=order),
    ]
    late = b"\xff\xe2" + struct.pack(">H", 40_002) + bytes(40_000)
    for block in shorts:
        for file in (
            jpeg_with(block),
            jpeg_with(block, before=late, pad=b"\xff\xff"),
        ):
            pixels = read_image(io.BytesIO(file))
            assert pixels.shape == (30, 23, 3)
            np.testing.assert_array_equal(decode_whole(file), pixels)
    for block in (
        *shorts,
        tiff((274, 4, 1, number(6, "I")), order=order),
        tiff((274, 1, 1, b"\6"), order=order),
    ):
        for file in (png_with(block), png_with(block, after_pixels=True)):
            assert read_image(io.BytesIO(file)).shape == (30, 23, 3)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"II*\0",
        b"garbage that is no TIFF",
        tiff(),
        tiff((274, 3, 1, b"\0")),
        tiff((274, 3, 1, b"\x09")),
        tiff((274, 3, 2, b"\6\0\6\0")),
        tiff((274, 5, 1, b"\6")),
        tiff((274, 3, 1, b"\6"))[:12],
        tiff((274, 3, 1, b"\6")).replace(b"\10\0\0\0", b"\xff\xff\xff\xff", 1),
        tiff((274, 3, 1, b"\6")).replace(b"\10\0\0\0", b"\xff\xff\0\0", 1),
    ],
)
def test_damaged_exif_is_upright(block: bytes) -> None:
    assert exif_orientation(block) == 1
    assert decode_whole(jpeg_with(block)).shape == PIXELS.shape
    for file in (png_with(block), png_with(block, after_pixels=True)):
        assert read_image(io.BytesIO(file)).shape == PIXELS.shape
