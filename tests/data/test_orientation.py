"""Tests of EXIF orientations: in Python, in graphs, and wherever images go."""

import functools
import io
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_dml.data import (
    ClassBalanced,
    ImageSet,
    View,
    eval_batches,
    pipeline,
    table,
)
from keras_dml.data.decode import exif_orientation, read_image
from keras_dml.data.encoded import of_file
from keras_dml.embedding import embed, embed_shards
from keras_dml.export.files import decode_whole, load_files
from keras_dml.search.encoder import image_sets
from keras_dml.serve.pictures import read_picture
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


def png_with(block: bytes, *chunks: bytes, after_pixels: bool = False) -> bytes:
    """A PNG with EXIF behind other chunks, which begin with their names."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    content = file.getvalue()
    at = len(content) - 12 if after_pixels else 33
    more = b"".join(
        struct.pack(">I", len(x) - 4) + x + struct.pack(">I", zlib.crc32(x))
        for x in (*chunks, b"eXIf" + block)
    )
    return content[:at] + more + content[at:]


@pytest.mark.parametrize("extension", ["jpg", "png", "webp", "tif"])
def test_all_orientations_give_the_same_pixels(
    tmp_path, decode, extension
) -> None:
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
def test_orientation_tag_is_found_wherever_it_may_be(order: str) -> None:
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
    for block in (
        *shorts,
        tiff((274, 3, 1, number(6)), order=order, start=41),
        tiff((274, 4, 1, number(6, "I")), order=order),
        tiff((274, 1, 1, b"\6"), order=order),
    ):
        for file in (
            jpeg_with(block),
            jpeg_with(block, before=late, pad=b"\xff\xff"),
            png_with(block),
            png_with(block, after_pixels=True),
            png_with(block, b"tEXteXIfII*\0\10\0\0\0\1\0\x12\1\3\0\1"),
        ):
            pixels = read_image(io.BytesIO(file))
            assert pixels.shape == (30, 23, 3)
            np.testing.assert_array_equal(decode_whole(file), pixels)


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
def test_damaged_exif_leaves_the_image_as_it_is(block: bytes) -> None:
    assert exif_orientation(block) == 1
    assert decode_whole(jpeg_with(block)).shape == PIXELS.shape
    for file in (png_with(block), png_with(block, after_pixels=True)):
        assert read_image(io.BytesIO(file)).shape == PIXELS.shape
        assert decode_whole(file).shape == PIXELS.shape


KINDS = {
    "jpg": (1, 3, 6, 8), "png": (1, 3, 6, 8), "webp": (1, 3, 6, 8),
    "tif": (1, 3, 6, 8), "gif": (1,), "bmp": (1,),
}  # fmt: skip
"""Formats, and orientations; those without EXIF are stored upright."""

TURNS = {1: 0, 3: 2, 6: -1, 8: 1}
"""Quarter turns to the left of a stored image, by orientation."""

SQUARE = PIXELS[:, :23]
SIZE = SQUARE.shape[:2]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[tuple[str, int], Path]:
    folder = tmp_path_factory.mktemp("images")
    return {
        (kind, turn): stored(
            folder / f"{turn}.{kind}",
            SQUARE,
            turn,
            **{"lossless": True} if kind == "webp" else {},
        )
        for kind, turns in KINDS.items()
        for turn in turns
    }


def in_batch(images: ImageSet, cache: str = "none") -> tf.Tensor:
    images = images.with_labels(np.zeros(len(images), int))
    sampler = ClassBalanced(images.labels, 1, len(images), steps_per_epoch=1)
    batches = pipeline(images, sampler, SIZE, crop="center", cache=cache)
    [(x, y)] = batches
    return tf.gather(x, np.argsort(y["index"]))


def in_table(images: ImageSet) -> list[np.ndarray]:
    file = Path(images.paths[0]).parent / "table.csv"
    lines = [f"{path},a,test" for path in images.paths]
    lines += [f"{images.paths[0]},b,train"]
    file.write_text("\n".join(["path,label,split", *lines]))
    test = table(file, validation=0).test
    return [test.read(row) for row in range(len(test))]


def flat() -> keras.Model:
    return keras.Sequential([keras.Input((*SIZE, 3)), keras.layers.Flatten()])


def contents_of(images: ImageSet) -> list[bytes]:
    return [Path(path).read_bytes() for path in images.paths]


def exported(images: ImageSet, fast: bool) -> list[np.ndarray | None]:
    contents = tf.constant(contents_of(images))
    status, seen = load_files(contents, View(SIZE, 3, fast=fast))
    return [
        None if x == b"unsupported" else pixels
        for x, pixels in zip(status.numpy(), seen, strict=True)
    ]


def queried(items: list) -> list[np.ndarray]:
    sets = image_sets(items, "queries")
    by_row = {row: x.read(i) for rows, x in sets for i, row in enumerate(rows)}
    return [by_row[row] for row in sorted(by_row)]


WAYS: dict[str, Callable[[ImageSet], Sequence[np.ndarray | None]]] = {
    "a set": lambda x: [x.read(row) for row in range(len(x))],
    "a table": in_table,
    "a test view": lambda x: next(iter(eval_batches(x, View(SIZE, 3)))),
    "a batch": in_batch,
    "a cached batch": lambda x: in_batch(x, "memory"),
    "embed": lambda x: embed(flat(), x).reshape(-1, *SIZE, 3),
    "embed_shards": lambda x: embed_shards(
        flat(), x, Path(x.paths[0]).parent / "shards"
    ).array().reshape(-1, *SIZE, 3),
    "a query of bytes": lambda x: queried(contents_of(x)),
    "a query in Pillow": lambda x: queried(
        [Image.open(io.BytesIO(content)) for content in contents_of(x)]
    ),
    "a server": lambda x: [*map(read_picture, x.paths)],
    "an export": lambda x: exported(x, fast=False),
    "an export, fast": lambda x: exported(x, fast=True),
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(files) -> Callable[[str], dict[tuple[str, int], np.ndarray | None]]:
    """Pixels of all files as one reader gives them, computed once."""
    images = ImageSet([*files.values()])
    return functools.cache(
        lambda way: dict(zip(files, WAYS[way](images), strict=True))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_every_reader_turns_every_kind_of_file(files, seen, kind, way) -> None:
    for turn in KINDS[kind]:
        pixels = seen(way)[kind, turn]
        if pixels is None:  # The export says that it cannot read these.
            assert kind in ("webp", "tif")
            continue
        expected = SQUARE
        if kind in ("jpg", "gif"):  # These formats change pixels.
            with Image.open(files[kind, turn]) as image:
                stored_pixels = np.asarray(image.convert("RGB"))
            expected = np.rot90(stored_pixels, TURNS[turn])
        np.testing.assert_array_equal(pixels, expected)
