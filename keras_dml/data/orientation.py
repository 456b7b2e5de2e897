"""Orientation: which way up the pixels of an image file are, by its EXIF.

Cameras store pixels in the order of the sensor, and their orientation in a
tag. The tag is read twice here, by the same rules: in Python for files that
Pillow opens, and in a graph, which is all that a SavedModel has. Only EXIF
counts, as in browsers; the copy of the tag that XMP may contain does not.
Damaged or out-of-range values count as upright.

Reference:
    CIPA DC-008 (Exif 2.32), 4.6.4 A, tag 274, and 4.7.2 for JPEG; PNG, third
    edition, 11.3.4.4 for the chunk `eXIf`; RFC 9649, 2.7 for that of WebP.
"""

import struct
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_dml.data.fields import Pixels
from keras_dml.data.graph_bytes import bytes_of, number, numbers, padded_bytes
from keras_dml.data.webp_and_bmp import is_webp, webp_has_exif
from keras_dml.utils.types import Tensor

_TAG = 274
_ENTRY = 12
_HEADER = b"Exif\0\0"
_CHUNK, _RIFF_CHUNK = b"eXIf", b"EXIF"

# Types that the value of a tag may have.
_BYTE, _SHORT, _LONG = 1, 3, 4

# Orientations, as the tag has them, by what makes them upright.
_TRANSPOSED = (5, 6, 7, 8)
_MIRRORED = (2, 3, 6, 7)
_FLIPPED = (3, 4, 7, 8)


def exif_orientation(exif: bytes) -> int:
    """The orientation that an EXIF block has, 1 to 8; 1 if it has none."""
    tiff = exif.removeprefix(_HEADER)
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    try:
        (start,) = struct.unpack_from(f"{order}4xI", tiff)
        (count,) = struct.unpack_from(f"{order}H", tiff, start)
        for at in range(start + 2, start + 2 + _ENTRY * count, _ENTRY):
            tag, kind, length = struct.unpack_from(f"{order}HHI", tiff, at)
            if tag == _TAG:
                letter = {_BYTE: "B", _SHORT: "H", _LONG: "I"}.get(kind)
                (value,) = struct.unpack_from(f"{order}{letter}", tiff, at + 8)
                return value if length == 1 and 1 <= value <= 8 else 1
    except struct.error:
        pass  # It ends too early, or has an unknown byte order or type.
    return 1


def swaps_sides(orientation: int) -> bool:
    """Whether an upright image is as wide as its pixels are high."""
    return orientation in _TRANSPOSED


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels (H, W, C) with the orientation applied."""
    if orientation in _TRANSPOSED:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in _MIRRORED:
        pixels = pixels[:, ::-1]
    if orientation in _FLIPPED:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def upright_in_graph(pixels: Tensor, orientation: Tensor) -> Tensor:
    """The same for tensors.

    There are no conditions here, because a graph with many conditions starts
    slowly.
    """

    def is_one_of(those: tuple[int, ...]) -> Tensor:
        return tf.reduce_any(orientation == tf.constant(those))

    axes = tf.where(is_one_of(_TRANSPOSED), [1, 0, 2], [0, 1, 2])
    turned = tf.transpose(pixels, axes)
    flips = tf.stack([is_one_of(_FLIPPED), is_one_of(_MIRRORED)])
    return tf.reverse(turned, tf.boolean_mask(tf.constant([0, 1]), flips))


Block: TypeAlias = tuple[Tensor, Tensor]
"""Where the EXIF block of a file starts, -1 if nowhere, and its size."""


def find_exif(contents: Tensor, is_png: Tensor) -> Block:
    """The EXIF block in the contents of a JPEG, PNG or WebP file.

    A single loop walks along the segments of JPEG and the chunks of the
    others, because each loop makes a graph start more slowly.
    """
    end = tf.strings.length(contents)
    is_riff = is_webp(contents)
    has_chunks = is_png | is_riff

    def more(start: Tensor, found: Tensor, size: Tensor) -> Tensor:
        return (start < end) & (found < 0)

    def following(
        start: Tensor, found: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        head = bytes_of(contents, start, 10)
        # A segment: 0xFF, its kind, its length, of which these are the last
        # two bytes, and its data. EXIF starts with a name of six bytes. Any
        # number of 0xFF may stand before the kind.
        kind, length = head[1], 2 + 256 * head[2] + head[3]
        is_exif = (kind == 0xE1) & tf.reduce_all(head[4:] == [*_HEADER])
        # The pixels start (SOS), or the file is over (EOI) or damaged.
        is_last = (head[0] != 0xFF) | (kind == 0xDA) | (kind == 0xD9)
        step = tf.where(kind == 0xFF, 1, length)
        # A chunk: the length of its data, its name, its data, a checksum.
        # In WebP its name, the length, its data, in an even number of bytes.
        chunk = number(tf.where(is_riff, head[4:8], head[:4]), 0, 4, is_riff)
        name = tf.where(is_riff, head[:4], head[4:8])
        wanted = tf.where(is_riff, [*_RIFF_CHUNK], [*_CHUNK])
        is_damaged = (chunk < 0) | (chunk > end - start)
        whole = chunk + tf.where(is_riff, 8 + chunk % 2, 12)

        is_exif = tf.where(has_chunks, tf.reduce_all(name == wanted), is_exif)
        is_last = tf.where(has_chunks, is_damaged, is_last)
        step = tf.where(has_chunks, whole, step)
        before = tf.where(has_chunks, 8, 10)
        size = tf.where(has_chunks, chunk, length - 10)
        found = tf.where(is_exif, start + before, -1)
        return tf.where(is_last, end, start + step), found, size

    # Where no PNG has the name of the chunk it need not be walked along.
    without = tf.strings.regex_replace(
        tf.where(is_png, contents, ""),
        _CHUNK.decode(),
        "",
        replace_global=False,
    )
    has_name = tf.strings.length(without) < end
    # After the signature of a PNG, or the two bytes of SOI.
    start = tf.where(is_png, tf.where(has_name, 8, end), 2)
    # After the 12 bytes that say that it is WebP, if those that follow say so.
    at_chunk = tf.where(webp_has_exif(contents), 12, end)
    start = tf.where(is_riff, at_chunk, start)
    first = (start, tf.constant(-1), tf.constant(0))
    _, found, size = tf.while_loop(more, following, first)
    return found, size


def orientation_in_graph(contents: Tensor, block: Block) -> Tensor:
    """The orientation in a file's EXIF block, () int32; 1 if none."""
    start, size = block
    raw = tf.strings.substr(
        contents, tf.maximum(start, 0), tf.where(start < 0, 0, size)
    )
    return _of_tiff(padded_bytes(raw, _MOST))


# No segment of JPEG is longer, and the tag is near the start of its block.
_MOST = 2**16


def _of_tiff(block: Tensor) -> Tensor:
    """`exif_orientation` of the bytes of a block, (`_MOST`,) int32."""
    is_little = tf.reduce_all(block[:2] == [*b"II"])
    is_big = tf.reduce_all(block[:2] == [*b"MM"])
    start = number(block, 4, 4, is_little)
    last = _MOST - 2 - _ENTRY
    is_known = (is_little | is_big) & (start >= 0) & (start <= last)
    start = tf.where(is_known, start, last)
    count = number(block, start, 2, is_little)
    count = tf.minimum(count, (_MOST - start - 2) // _ENTRY)
    entries = block[start + 2 : start + 2 + count * _ENTRY]
    entries = tf.reshape(entries, (-1, _ENTRY))
    tags = numbers(entries[:, :2], is_little)
    # The first entry with the tag counts; without any, one of zeros.
    entries = tf.boolean_mask(entries, tags == _TAG)
    entry = tf.pad(entries, [[0, 1], [0, 0]])[0]
    kind = number(entry, 2, 2, is_little)
    length = number(entry, 4, 4, is_little)
    sizes = {_BYTE: 1, _SHORT: 2, _LONG: 4}
    values = [number(entry, 8, size, is_little) for size in sizes.values()]
    # One of them at most is left.
    value = tf.reduce_sum(tf.where(kind == [*sizes], values, 0))
    is_valid = is_known & (length == 1) & (value >= 1) & (value <= 8)
    return tf.where(is_valid, value, 1)
