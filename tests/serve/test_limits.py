"""Pictures are refused by their headers."""

import io
import struct
import sys
import tracemalloc
import zlib

import PIL.Image
import pytest

from keras_dml.serve.errors import RequestError
from keras_dml.serve.limits import (
    TooManyPixels,
    check_picture,
    check_pictures,
)
from keras_dml.serve.page.thumbnails import pixels_to_decode


def png_of(width: int, height: int) -> bytes:
    """A file whose header claims a size, with hardly anything behind it."""

    def chunk(name: bytes, content: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


def picture(file_format: str) -> bytes:
    file = io.BytesIO()
    PIL.Image.new("RGB", (20, 10)).save(file, file_format)
    return file.getvalue()


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_a_picture_passes_up_to_its_pixels(file_format: str) -> None:
    check_picture(picture(file_format), 200)
    with pytest.raises(TooManyPixels, match="199 pixels. Received: 200"):
        check_picture(picture(file_format), 199)


def test_a_photograph_of_a_phone_passes() -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    check_picture(picture("HEIF"), 200)
    with pytest.raises(TooManyPixels, match="199 pixels. Received: 200"):
        check_picture(picture("HEIF"), 199)


def test_what_reads_photographs_of_phones_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = b"\0\0\0\x18ftypheic" + bytes(12)
    with pytest.raises(RequestError, match=r'install "keras-dml\[heif\]"'):
        check_picture(data, 200)
    check_pictures([data], 100)


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x89PNG\r\n", b"BM" + bytes(50), b"RIFF"]
)
def test_what_is_no_picture_says_so(data: bytes) -> None:
    with pytest.raises(RequestError, match="must be an image file"):
        check_picture(data, 100)
    check_pictures([data], 100)


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_a_bomb_is_not_decoded(side: int) -> None:
    bomb = png_of(side, side)
    assert len(bomb) < 200
    tracemalloc.start()
    for check in (
        lambda x, n: check_picture(x, n),
        lambda x, n: check_pictures([x], n),
    ):
        with pytest.raises(TooManyPixels):
            check(bomb, 2**26)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("options", "box", "pixels"),
    [
        ({}, None, 800 * 600),  # Half of each side.
        ({}, (0, 0, 9, 9), 1600 * 1200),
        ({"progressive": True}, None, 1600 * 1200),
    ],
)
def test_thumbnails_decode_what_they_need(tmp_path, options, box, pixels):
    row = {"path": str(tmp_path / "x.jpg"), "box": box}
    PIL.Image.new("RGB", (1600, 1200)).save(row["path"], **options)
    assert pixels_to_decode(row, 2**22) == pixels
    with pytest.raises(RequestError, match="is too large.*Received"):
        pixels_to_decode(row, pixels - 1)


def test_many_pictures_have_a_limit_together() -> None:
    assert check_pictures([picture("PNG"), b"a"] * 8, 200) == [200, 0] * 8
    with pytest.raises(TooManyPixels, match="1,600 pixels in total"):
        check_pictures([picture("PNG")] * 9, 200)
