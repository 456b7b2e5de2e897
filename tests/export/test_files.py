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
from keras_dml.export.files import load_files
from tests.export.serving import random_images

VIEW = View((24, 24), 3)
COLOR = random_images(30, 41, 3)
GRAY = random_images(30, 41, 1)
EXIF_ORIENTATION = 274


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


def turned(orientation: int) -> bytes:
    exif = PIL.Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    return saved(image_of("RGB"), "JPEG", exif=exif)


def animated(**options: Any) -> bytes:
    frames = [PIL.Image.fromarray(x) for x in (COLOR, 255 - COLOR)]
    options |= {"save_all": True, "append_images": frames[1:]}
    return saved(frames[0], "GIF", **options)


def gif_with_frame(width: int, height: int) -> bytes:
    """A GIF whose screen is small, and its first frame claims this size."""
    file = animated(comment=b"!,;" * 300)
    at = file.index(b"\0,\0\0\0\0\x29\0\x1e\0") + 6
    return file[:at] + struct.pack("<HH", width, height) + file[at + 4 :]


def bmp_with_sides(width: int, height: int) -> bytes:
    """Rows of a BMP whose height is negative start with the upper one."""
    file = saved(image_of("RGB"), "BMP")
    return file[:18] + struct.pack("<ii", width, height) + file[26:]


def compressed(bmp: bytes) -> bytes:
    return bmp[:30] + struct.pack("<I", 1) + bmp[34:]


GOOD = {
    **{f"JPEG {x}": saved(image_of(x), "JPEG") for x in ("RGB", "L", "CMYK")},
    "progressive JPEG": saved(image_of("RGB"), "JPEG", progressive=True),
    **{f"JPEG turned {i}": turned(i) for i in range(1, 9)},
    **{
        f"PNG {x}": saved(image_of(x), "PNG")
        for x in ("RGB", "RGBA", "L", "P", "1")
    },
    **{f"GIF {x}": saved(image_of(x), "GIF") for x in ("RGB", "L", "1")},
    "animated GIF": animated(),
    "GIF with a long comment": animated(comment=b"!,;" * 300),
    **{f"BMP {x}": saved(image_of(x), "BMP") for x in ("RGB", "RGBA")},
    "BMP from the top": bmp_with_sides(41, -30),
}


@pytest.mark.slow
def test_files_decode_like_pillow(load) -> None:
    status, seen = load([*GOOD.values()])
    assert dict(zip(GOOD, status, strict=True)) == dict.fromkeys(GOOD, "ok")
    for (name, file), views in zip(GOOD.items(), seen, strict=True):
        with PIL.Image.open(io.BytesIO(file)) as image:
            upright = PIL.ImageOps.exif_transpose(image).convert("RGB")
        np.testing.assert_array_equal(
            views, VIEW.apply(np.asarray(upright)), name
        )
    # Of 16 bits, the upper ones.
    _, [seen] = load([saved(image_of("I;16"), "PNG")])
    np.testing.assert_array_equal(seen, VIEW.apply(GRAY))


def test_files_of_other_formats_are_unsupported(load) -> None:
    files = [
        b"",
        b"no image",
        "kein Bild, ein Text".encode("utf-16"),
        bytes(2000),
        *(saved(image_of("RGB"), x) for x in ("TIFF", "PPM", "AVIF", "WEBP")),
        *(saved(image_of(m), "BMP") for m in ("1", "P")),
        compressed(saved(image_of("RGB"), "BMP")),
        b"BM",
        b"\xff\xd8",
        b"\x89PNG\r\n\x1a",
    ]
    status, seen = load(files)
    assert status == ["unsupported"] * len(files)
    assert not seen.any()


def test_truncated_files_are_damaged(load) -> None:
    headers = [
        b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", png(20, 20), png(0, 0),
        b"GIF89a", animated()[:800], saved(image_of("RGB"), "BMP")[:54],
        bmp_with_sides(2**13, -(2**13)),
    ]  # fmt: skip
    files = [saved(image_of("RGB"), x) for x in ("JPEG", "PNG", "GIF", "BMP")]
    parts = [x[: len(x) * i // 10] for x in files for i in range(1, 9)]
    status, seen = load([*headers, *parts, *files])
    assert status == ["damaged"] * 40 + ["ok"] * 4
    assert not seen[:40].any() and seen[40:].any(axis=(1, 2, 3)).all()


@pytest.mark.slow
def test_large_and_long_images_are_rejected_by_their_headers(load) -> None:
    rows = zlib.compress(bytes(2**20))
    files = [
        png(2**14, 2**14, (b"IDAT", rows)),
        # Sides whose product is past 64 bits, unless they are refused.
        png(2**31 - 1, 2**31 - 1, (b"IDAT", rows)),
        png(100_000, 1, (b"IDAT", zlib.compress(bytes(100_001)))),
        saved(PIL.Image.new("L", (1, 51)), "PNG"),
        saved(PIL.Image.new("L", (65_000, 1)), "JPEG"),
        gif_with_frame(2**14, 2**14),
        saved(PIL.Image.new("L", (51, 1)), "GIF"),
        bmp_with_sides(2**14, -(2**14)),
        saved(PIL.Image.new("RGB", (65_000, 1)), "BMP"),
    ]
    status, seen = load(files)
    assert status == ["too large"] * len(files)
    assert not seen.any()
    largest = PIL.Image.fromarray(COLOR).resize((5000, 4000))
    longest = saved(PIL.Image.new("L", (1, 50), 255), "PNG")
    assert load([saved(largest, "JPEG"), longest])[0] == ["ok", "ok"]


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
        limit = len(content) if kind == 4 else min(64, len(content))
        for _ in range(rng.randrange(1, 20)):
            content[rng.randrange(limit)] = rng.randrange(256)
    return bytes(content)


@pytest.mark.slow
def test_damaged_files_leave_the_others_alone(load) -> None:
    rng = random.Random(0)
    files = [*GOOD.values()]
    [good] = load(files[:1])[1]
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


@pytest.mark.slow
def test_large_image_turns_gray_with_the_same_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keras_dml.export.files._LARGE_IMAGE", 100)
    gray = View((8, 8), 1)
    file = saved(PIL.Image.fromarray(COLOR), "PNG")
    status, [seen] = load_files(tf.constant([file]), gray)
    assert status.numpy().tolist() == [b"ok"]
    np.testing.assert_array_equal(seen, gray.apply(COLOR))
