"""Tests of image decoding: the graph against Pillow, format by format."""

import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import ImageSet, View, eval_batches
from keras_dml.data.decode import read_image
from keras_dml.data.encoded import of_file
from tests.search.test_mutations import changed

RNG = np.random.default_rng(0)
GRAY = np.arange(20 * 30, dtype=np.uint8).reshape(20, 30)
RGB = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
# JPEG keeps what is smooth.
SMOOTH = np.stack(
    np.broadcast_arrays(
        np.linspace(0, 255, 30)[None], np.linspace(255, 0, 20)[:, None], 90.0
    ),
    axis=-1,
).astype(np.uint8)


@tf.function(input_signature=[tf.TensorSpec((), tf.string)])
def decode(path: tf.Tensor) -> tf.Tensor:
    return of_file(path).pixels()


def both(path: Path) -> tuple[np.ndarray, np.ndarray]:
    return read_image(path), decode(str(path)).numpy()


@pytest.mark.parametrize("extension", ["png", "bmp"])
@pytest.mark.parametrize("array", [GRAY, RGB])
def test_lossless_files_keep_their_pixels(
    tmp_path: Path, extension: str, array: np.ndarray
) -> None:
    path = tmp_path / f"image.{extension}"
    Image.fromarray(array).save(path)
    expected = array[..., None] if array.ndim == 2 else array
    read, decoded = both(path)
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(
        decoded, np.broadcast_to(expected, (20, 30, 3))
    )


def palette(image: Image.Image) -> Image.Image:
    return image.quantize(64)


def transparent(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.putalpha(Image.fromarray(GRAY))
    return image


def gray_alpha(image: Image.Image) -> Image.Image:
    return transparent(image.convert("L"))


def one_bit(image: Image.Image) -> Image.Image:
    return image.convert("1")


@pytest.mark.parametrize(
    ("extension", "convert"),
    [
        ("png", palette),
        ("png", transparent),
        ("png", gray_alpha),
        ("png", one_bit),
        ("bmp", palette),
        ("bmp", transparent),
        ("gif", palette),
        ("webp", transparent),
        ("webp", Image.Image.copy),
        ("webp", lambda image: image.convert("L").crop((3, 2, 24, 19))),
    ],
)
def test_graph_decodes_like_pillow(tmp_path, extension, convert) -> None:
    path = tmp_path / f"image.{extension}"
    convert(Image.fromarray(RGB)).save(path)
    read, decoded = both(path)
    expected = np.broadcast_to(read, (*read.shape[:2], 3))
    np.testing.assert_array_equal(decoded, expected)
    assert decoded.std() > 20


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_decodes_like_pillow(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "image.jpg"
    image = Image.fromarray(SMOOTH).convert(mode)
    image.save(path, quality=98)
    read, decoded = both(path)
    assert read.shape == (20, 30, 1 if mode == "L" else 3)
    if mode != "CMYK":
        np.testing.assert_array_equal(
            decoded, np.broadcast_to(read, (20, 30, 3))
        )
    # The two compute RGB from CMYK differently, by a rounding or so.
    assert np.abs(decoded.astype(int) - read).max() <= 2
    if mode != "L":
        assert np.abs(decoded.astype(int) - SMOOTH).max() <= 12


def test_images_of_16_bits_keep_the_high_byte(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    values = np.linspace(0, 65535, 600).reshape(20, 30).astype(np.uint16)
    Image.fromarray(values).save(path)
    read, decoded = both(path)
    np.testing.assert_array_equal(read[..., 0], values >> 8)
    np.testing.assert_array_equal(decoded[..., 1], values >> 8)


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    path = tmp_path / "image.gif"
    frames = [Image.fromarray(np.full((5, 6), v, np.uint8)) for v in (50, 200)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    for pixels in both(path):
        assert np.all(pixels == 50)


@pytest.mark.parametrize("extension", ["jpg", "png", "bmp", "gif", "webp"])
def test_too_large_images_raise_by_their_header(
    tmp_path: Path, extension: str
) -> None:
    """The header alone claims the size; the file has no such pixels."""
    path = tmp_path / f"image.{extension}"
    Image.fromarray(GRAY).save(path)
    content = path.read_bytes()
    place, order = {
        "jpg": (content.find(b"\xff\xc0") + 5, ">HH"),
        "png": (16, ">II"),
        "bmp": (18, "<II"),
        "gif": (6, "<HH"),
        "webp": (26, "<HH"),
    }[extension]
    sides = struct.pack(order, *(2 * [16_000 if order == "<HH" else 30_000]))
    content = content[:place] + sides + content[place + len(sides) :]
    if extension == "png":
        checksum = struct.pack(">I", zlib.crc32(content[12:29]))
        content = content[:29] + checksum + content[33:]
    path.write_bytes(content)
    with pytest.raises(ValueError, match="more than 178,956,970 pixels"):
        read_image(path)
    if extension in ("png", "webp"):
        images = ImageSet([path], [0])
        pattern = rf"image\.{extension}.* more than"
        with pytest.raises(tf.errors.OpError, match=pattern):
            list(eval_batches(images, View((8, 8), 3)))


def test_unsupported_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    # Whatever a file is called, Pillow would have Ghostscript draw it.
    Image.fromarray(RGB).save(path, "EPS")
    with pytest.raises(ValueError, match=r"image\.jpg' .*: it is PostScript"):
        read_image(path)
    with pytest.raises(ValueError, match=r"none\.jpg' .* decoded: FileN"):
        read_image(tmp_path / "none.jpg")
    path = tmp_path / "image.tif"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"image\.tif' .*: it is empty"):
        read_image(path)
    for dtype in (np.float32, np.int32):
        Image.fromarray(np.zeros((4, 5), dtype)).save(path)
        with pytest.raises(ValueError, match="have 32 bits. Save it with 8"):
            read_image(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_randomly_changed_files_decode_alike_or_raise(
    kind: str, tmp_path: Path
) -> None:
    """All decoders give the same pixels, or all raise."""
    draw, refused = random.Random(0), 0
    path = tmp_path / "changed.bin"
    Image.fromarray(RGB[:16, :16]).save(path, kind)
    whole = path.read_bytes()
    for _ in range(30):
        path.write_bytes(changed(whole, draw))
        try:
            seen = decode(str(path)).numpy()
        # The message about a chunk of PNG quotes its bytes.
        except (tf.errors.OpError, UnicodeDecodeError):
            refused += 1
            continue
        pixels = np.broadcast_to(read_image(path), seen.shape)
        np.testing.assert_array_equal(seen, pixels)
    assert refused
