"""Memory weights of pictures, and views of large ones."""

import io
import sys
import tracemalloc
import zlib

import numpy as np
import PIL.Image
import pytest

from keras_dml.data import View
from keras_dml.serve import pictures
from keras_dml.serve.errors import RequestError
from keras_dml.serve.page import weigh_row
from keras_dml.serve.pictures import (
    NoPicture,
    Viewer,
    read_picture,
    weigh,
)
from tests.export.test_files import png
from tests.serve.conftest import encode


def png_of(width: int, height: int) -> bytes:
    """A file whose header claims a size, with hardly anything behind it."""
    return png(width, height, (b"IDAT", zlib.compress(bytes(1000))))


def photograph(width: int = 600, height: int = 400) -> np.ndarray:
    """Smooth pixels, (H, W, 3) uint8."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    image = PIL.Image.fromarray(coarse)
    return np.asarray(image.resize((width, height), PIL.Image.BICUBIC))


KINDS = {
    "JPEG": {},
    "JPEG progressive": {"progressive": True},
    "PNG": {},
    "PNG gray": {},
    "PNG 16 bit": {},
    "PNG alpha": {},
    "BMP": {},
    "GIF": {},
    "TIFF": {"compression": "tiff_adobe_deflate"},
    "WEBP": {"lossless": True},
    "JPEG2000": {},
    "JPEG CMYK": {},
}


def file_of(kind: str, pixels: np.ndarray) -> bytes:
    if kind == "PNG gray":
        pixels = pixels[..., 1]
    if kind == "PNG 16 bit":
        pixels = pixels[..., 1].astype(np.uint16) * 257
    image = PIL.Image.fromarray(pixels)
    modes = {"PNG alpha": "RGBA", "JPEG CMYK": "CMYK"}
    file = io.BytesIO()
    image = image.convert(modes[kind]) if kind in modes else image
    image.save(file, kind.split()[0], **KINDS[kind])
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_reduced_picture_looks_like_the_whole_one(kind, monkeypatch) -> None:
    """Compares the view of the picture reduced by 4 with that of all pixels."""
    view = View((32, 32), 3)
    file = file_of(kind, photograph())
    whole = Viewer(view).see(file)
    monkeypatch.setattr(pictures, "MAX_WHOLE_PIXELS", 100_000)
    monkeypatch.setattr(pictures, "_REDUCED_PIXELS", 15_000)
    monkeypatch.setattr(pictures, "_STRIP_PIXELS", 100 * 600)
    reduced = read_picture(io.BytesIO(file))
    assert reduced.shape[:2] == (100, 150)
    assert np.abs(Viewer(view).see(file) - whole).max() < 6
    assert np.abs(Viewer(view).see(file) - whole).mean() < 1


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_reduced_picture_is_upright(kind, orientation, monkeypatch) -> None:
    exif = PIL.Image.Exif()
    exif[274] = orientation
    file = encode(photograph(), kind, exif=exif)
    whole = Viewer(View((32, 32), 1)).see(file)
    monkeypatch.setattr(pictures, "MAX_WHOLE_PIXELS", 100_000)
    monkeypatch.setattr(pictures, "_REDUCED_PIXELS", 15_000)
    assert np.abs(Viewer(View((32, 32), 1)).see(file) - whole).mean() < 1


@pytest.mark.parametrize("channels", [1, 3])
def test_view_equals_that_of_the_model(channels) -> None:
    pixels, view = photograph(1800, 1200), View((48, 48), channels)
    seen = Viewer(view).see(encode(pixels, "png"))
    np.testing.assert_array_equal(seen, view.apply(pixels))


def test_fast_view_decodes_jpeg_smaller() -> None:
    file = encode(photograph(1800, 1200), "jpeg")
    slow, fast = (Viewer(View((48, 48), 3, fast=x)) for x in (False, True))
    assert read_picture(io.BytesIO(file), (96, 144)).shape == (150, 225, 3)
    assert 0 < np.abs(slow.see(file) - fast.see(file)).max() < 6


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("PNG", 1.4),
        ("PNG gray", 0.4),
        ("PNG 16 bit", 1.8),
        ("JPEG", 1.4),
        # The coefficients of 4:2:0.
        ("JPEG progressive", 2),
        ("JPEG CMYK", 2.2),
        ("GIF", 1.8),
        ("TIFF", 2.2),
        ("WEBP", 4),
        ("JPEG2000", 4.6),
    ],
)
def test_picture_weighs_the_memory_of_its_kind(kind, share) -> None:
    file = file_of(kind, photograph())
    assert weigh(file, 2**26) == pytest.approx(share * 240_000, rel=0.02)


SMALL = [encode(photograph(20, 10), kind) for kind in ("PNG", "JPEG", "BMP")]
BOMBS = [png_of(side, side) for side in (10_000, 60_000)]


@pytest.mark.parametrize(
    ("file", "max_pixels", "error"),
    [
        (png_of(51, 1), 1000, "Received: 51 × 1 pixels"),
        *[(x, 199, "199 pixels. Received: 200") for x in SMALL],
        *[(x, 2**26, "more than 67,108,864 pixels") for x in BOMBS],
        (
            encode(photograph(500, 500), "webp"),
            250_000,
            "take as much as .*max-pixels",
        ),
    ],
)
def test_picture_is_rejected_by_its_header(file, max_pixels, error) -> None:
    tracemalloc.start()
    with pytest.raises(RequestError, match=error):
        weigh(file, max_pixels)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_picture_passes_up_to_its_limits() -> None:
    for file in SMALL:
        assert weigh(file, 200) <= 200
    assert weigh(png_of(50, 1), 1000)
    assert weigh(png_of(500, 500), 250_000) <= 250_000


def test_heic_photograph_names_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = b"\0\0\0\x18ftypheic" + bytes(12)
    with pytest.raises(RequestError, match=r'install "keras-dml\[heif\]"'):
        weigh(data, 200)
    monkeypatch.undo()
    pytest.importorskip("pillow_heif").register_heif_opener()
    assert weigh(encode(photograph(40, 20), "HEIF"), 2**26) > 800


@pytest.mark.parametrize(
    "data",
    [b"", b"text", b"\x89PNG\r\n", b"BM" + bytes(50), b"RIFF", b"ico"],
)
def test_file_without_a_picture_raises(data) -> None:
    if data == b"ico":  # A file of files, whose header says little of them.
        data = encode(photograph(16, 16), "ico")
    with pytest.raises(NoPicture, match="must be an image file"):
        weigh(data, 10_000)


def test_thumbnails_weigh_like_other_pictures(tmp_path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(encode(photograph()))
    row = {"path": str(path)}
    assert weigh_row(row, 2**26) == weigh(path.read_bytes(), 2**26)
    assert weigh_row(row | {"thumbnail": "data:image/png;base64,"}, 9) == 0
    with pytest.raises(RequestError):
        weigh_row(row, 100_000)
