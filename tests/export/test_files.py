"""Tests of files that are decoded in the graph, good ones and bad ones."""

import io
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from keras_dml.data import View
from keras_dml.data.view import to_channels
from keras_dml.export.files import _gray_in_strips, load_files
from tests.export.serving import random_images

VIEW = View((24, 24), 3)
COLOR = random_images(30, 41, 3)
GRAY = random_images(30, 41, 1)


@pytest.fixture(scope="module")
def load() -> Callable[[list[bytes]], tuple[list[str], Any]]:
    function = tf.function(
        lambda files: load_files(files, VIEW),
        input_signature=[tf.TensorSpec((None,), "string")],
        autograph=False,
    )

    def load(files: list[bytes]) -> tuple[list[str], Any]:
        status, seen = function(tf.constant(files, "string"))
        return [x.decode() for x in status.numpy()], seen.numpy()

    return load


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of 8-bit grays with a correct header and any other chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    result = b"\x89PNG\r\n\x1a\n"
    for name, content in ((b"IHDR", header), *chunks, (b"IEND", b"")):
        checksum = zlib.crc32(name + content)
        result += struct.pack(">I", len(content)) + name + content
        result += struct.pack(">I", checksum)
    return result


def image_of(mode: str) -> PIL.Image.Image:
    if mode == "I;16":
        return PIL.Image.fromarray(GRAY[..., 0].astype(np.uint16) * 256 + 77)
    return PIL.Image.fromarray(COLOR).convert(mode)


def saved(image: PIL.Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def animated(file_format: str) -> bytes:
    frames = [PIL.Image.fromarray(COLOR), PIL.Image.fromarray(255 - COLOR)]
    return saved(
        frames[0], file_format, save_all=True, append_images=frames[1:]
    )


def transparent() -> PIL.Image.Image:
    return PIL.Image.fromarray(random_images(30, 41, 4))


WEBP = [
    *(saved(image_of(mode), "WEBP") for mode in ("RGB", "L")),
    saved(transparent(), "WEBP"),
    *(
        saved(x, "WEBP", lossless=True)
        for x in (image_of("RGB"), transparent())
    ),
    saved(transparent(), "WEBP", lossless=True, exact=True),
]


def upside_down(bmp: bytes, width: int = 41, height: int = -30) -> bytes:
    """The same rows, of which the first is the upper one."""
    return bmp[:18] + struct.pack("<ii", width, height) + bmp[26:]


def webp_of_most_pixels(kind: bytes) -> bytes:
    head = {
        b"VP8 ": struct.pack("<6xHH", 2**14 - 1, 2**14 - 1),
        b"VP8L": b"/" + struct.pack("<I", 2**28 - 1),
        b"VP8X": bytes(4) + b"\xff\x3f\0\xff\x3f\0",
    }[kind]
    chunk = kind + struct.pack("<I", 1000) + head + bytes(1000)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def compressed(bmp: bytes) -> bytes:
    return bmp[:30] + struct.pack("<I", 1) + bmp[34:]


@pytest.mark.slow
def test_formats_that_are_decoded(load) -> None:
    files = [
        *(saved(image_of(mode), "JPEG") for mode in ("RGB", "L", "CMYK")),
        saved(image_of("RGB"), "JPEG", progressive=True),
        *(saved(image_of(m), "PNG") for m in ("RGB", "RGBA", "L", "P", "1")),
        *WEBP,
        *(saved(image_of(m), "BMP") for m in ("RGB", "RGBA")),
        upside_down(saved(image_of("RGB"), "BMP")),
    ]
    status, seen = load(files)
    assert status == ["ok"] * len(files)
    for file, views in zip(files, seen, strict=True):
        pixels = np.asarray(PIL.Image.open(io.BytesIO(file)).convert("RGB"))
        np.testing.assert_array_equal(views, VIEW.apply(pixels))


@pytest.mark.slow
def test_jpeg_is_turned_upright(load) -> None:
    files = []
    for orientation in range(1, 9):
        exif = PIL.Image.Exif()
        exif[274] = orientation
        files.append(saved(image_of("RGB"), "JPEG", exif=exif))
    status, seen = load(files)
    assert status == ["ok"] * 8
    for file, views in zip(files, seen, strict=True):
        with PIL.Image.open(io.BytesIO(file)) as image:
            upright = PIL.ImageOps.exif_transpose(image).convert("RGB")
            pixels = np.asarray(upright)
        np.testing.assert_array_equal(views, VIEW.apply(pixels))


def test_deep_gray_keeps_its_upper_bits(load) -> None:
    status, [seen] = load([saved(image_of("I;16"), "PNG")])
    assert status == ["ok"]
    np.testing.assert_array_equal(seen, VIEW.apply(GRAY))


def test_files_of_other_formats_are_unsupported(load) -> None:
    files = [
        b"",
        b"no image",
        "kein Bild, ein Text".encode("utf-16"),
        bytes(2000),
        *(saved(image_of("RGB"), x) for x in ("TIFF", "PPM", "AVIF")),
        *(animated(x) for x in ("GIF", "WEBP")),
        *(saved(image_of(m), "BMP") for m in ("1", "P")),
        compressed(saved(image_of("RGB"), "BMP")),
        b"BM",
        b"RIFF0000WEBP",
        b"RIFF0000WAVEfmt ",
        b"\xff\xd8",
        b"\x89PNG\r\n\x1a",
    ]
    status, seen = load(files)
    assert status == ["unsupported"] * len(files)
    assert not seen.any()


@pytest.mark.slow
def test_headers_alone_are_damaged(load) -> None:
    starts = [
        b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n",
        png(20, 20), png(0, 0), b"RIFF0000WEBPVP8X",
        saved(image_of("RGB"), "BMP")[:54],
        upside_down(saved(image_of("RGB"), "BMP"), 2**23, -(2**23)),
    ]  # fmt: skip
    assert load(starts)[0] == ["damaged"] * 7


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "BMP"])
def test_cut_files_are_damaged(load, file_format: str) -> None:
    file = saved(image_of("RGB"), file_format)
    parts = [file[: len(file) * i // 10] for i in range(1, 9)]
    status, seen = load([*parts, file])
    assert status == ["damaged"] * 8 + ["ok"]
    assert not seen[:-1].any() and seen[-1].any()


@pytest.mark.slow
def test_images_that_would_take_gigabytes_are_too_large(load) -> None:
    rows = zlib.compress(bytes(2**20))
    files = [
        png(2**14, 2**14, (b"IDAT", rows)),
        # Sides whose product is past 64 bits, unless they are refused.
        png(2**31 - 1, 2**31 - 1, (b"IDAT", rows)),
        # A view of it would be 24 × 2,400,000.
        png(100_000, 1, (b"IDAT", zlib.compress(bytes(100_001)))),
        saved(PIL.Image.new("L", (65_000, 1)), "JPEG"),
        # Of 2**14 pixels a side, the most of WebP.
        *(webp_of_most_pixels(x) for x in (b"VP8 ", b"VP8L", b"VP8X")),
        saved(PIL.Image.new("RGB", (65_000, 1)), "BMP"),
    ]
    status, seen = load(files)
    assert status == ["too large"] * len(files)
    assert not seen.any()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["longest", "squash"])
def test_no_image_is_too_thin_for_a_square(mode: str) -> None:
    view = View((24, 24), 1, 30, mode)
    thin = png(100_000, 1, (b"IDAT", zlib.compress(b"\0" + b"\xff" * 100_000)))
    large = png(2**14, 2**14, (b"IDAT", zlib.compress(bytes(2**20))))
    status, [seen, _] = load_files(tf.constant([thin, large]), view)
    assert status.numpy().tolist() == [b"ok", b"too large"]
    expected = np.full((24, 24, 1), 255.0)
    if mode == "longest":
        expected[np.arange(24) != 11] = 0
    np.testing.assert_array_equal(seen, expected)


def test_large_images_are_fine(load) -> None:
    image = PIL.Image.fromarray(COLOR).resize((5000, 4000))
    assert load([saved(image, "JPEG")])[0] == ["ok"]


def damaged(file: bytes, rng: random.Random) -> bytes:
    content = bytearray(file)
    at = rng.randrange(len(content))
    length = rng.randrange(1, 100)
    kind = rng.randrange(6)
    if kind == 0:
        del content[at:]
    elif kind == 1:
        del content[at : at + length]
    elif kind == 2:
        content[at:at] = rng.randbytes(length)
    elif kind == 3:
        content[at : at + length] = bytes(len(content[at : at + length]))
    else:
        # Headers are short, so that they need more than their share.
        most = len(content) if kind == 4 else min(64, len(content))
        for _ in range(rng.randrange(1, 20)):
            content[rng.randrange(most)] = rng.randrange(256)
    return bytes(content)


@pytest.mark.slow
def test_no_damage_takes_the_other_files_down(load) -> None:
    rng = random.Random(0)
    files = [
        *(saved(image_of(mode), "JPEG") for mode in ("RGB", "L", "CMYK")),
        saved(image_of("RGB"), "JPEG", progressive=True),
        *(saved(image_of(m), "PNG") for m in ("RGB", "RGBA", "P", "1", "I;16")),
        *WEBP,
        saved(image_of("RGB"), "BMP"),
    ]
    [good] = load([files[0]])[1]
    counts = dict.fromkeys(("ok", "unsupported", "damaged", "too large"), 0)
    for _ in range(30):
        batch = [damaged(rng.choice(files), rng) for _ in range(40)]
        status, seen = load([*batch, files[0]])
        for name in status[:-1]:
            counts[name] += 1
        assert status[-1] == "ok"
        np.testing.assert_array_equal(seen[-1], good)
        assert not seen[[x != "ok" for x in status]].any()
    # Much of it must be noticed by nothing but the decoder.
    assert counts["damaged"] > 350
    assert counts["ok"] > 170


def test_a_large_image_becomes_gray_in_strips_with_the_same_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keras_dml.export.files._STRIP", 2**11)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 70, 3), np.uint8)
    expected = to_channels(tf.constant(pixels), 1)
    tf.debugging.assert_equal(_gray_in_strips(tf.constant(pixels)), expected)
    gray = View((8, 8), 1)
    status, seen = load_files(
        tf.constant([saved(PIL.Image.fromarray(pixels), "PNG")]), gray
    )
    assert status.numpy().tolist() == [b"ok"]
    tf.debugging.assert_equal(seen[0], gray.apply(pixels))
