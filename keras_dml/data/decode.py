"""Decodes image files to pixels, with Pillow."""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np

from keras_dml.data.validation import Pixels
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import check_regular
from keras_dml.utils.types import Rows

if TYPE_CHECKING:
    from PIL.Image import Image

ImageFile: TypeAlias = str | os.PathLike[str] | IO[bytes]
"""A path, or an open file, such as `io.BytesIO(contents)`."""

MAX_PIXELS = 2**29 // 3
"""Number of pixels of the largest image that is read: 178,956,970.

A file of a few kilobytes can claim to contain an image of gigabytes. At this
size, Pillow assumes a decompression bomb, and TensorFlow's JPEG decoder stops.
"""

MAX_SIDE_RATIO = 50
"""Largest ratio of the long side of an image to its short side.

Where the short side is given, a view of a longer image would take gigabytes.
"""

_STRIP_PIXELS = 2**22
"""Pixels that are copied at a time."""

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"

EXIF = b"Exif\0\0"
"""The first bytes of the EXIF block in a JPEG file."""

ORIENTATION = 274
"""The tag of the orientation of stored pixels, from 1, upright, to 8."""

# Orientations by the steps that make pixels upright, in this order.
TRANSPOSED = (5, 6, 7, 8)
MIRRORED = (2, 3, 6, 7)
FLIPPED = (3, 4, 7, 8)

# The brands of HEIF files with images like HEIC, and of AVIF files.
_HEIF = tuple(
    b"ftyp" + x for x in (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")
)
_AVIF = (b"ftypavif", b"ftypavis")


def read_image(
    file: ImageFile, box: Rows | None = None, side: int | None = None
) -> Pixels:
    """Decodes an image file of any format with Pillow.

    The EXIF orientation is applied. Transparency is dropped, 16-bit samples
    keep their upper 8 bits, CMYK becomes RGB, and only the first frame of an
    animation is read. A ValueError names a file that cannot be decoded, or is
    longer than `MAX_SIDE_RATIO` allows.

    Args:
        file: The file.
        box: The part of the upright image to return, as in `ImageSet`.
        side: If it is given, an image without a box may be returned smaller,
            with sides at least twice as long as this. Its pixels change, and a
            JPEG file is decoded in a fraction of time and memory.

    Returns:
        Pixels, (H, W, 1) for a gray image and (H, W, 3) otherwise.
    """
    with open_checked(file) as image:
        width, height = image.size
        if box is None and side is not None:
            draft(image, side)
            # Other formats are decoded whole; reducing them halves the memory.
            factor = min(image.size) // (2 * side)
            if image.mode in ("L", "RGB") and factor > 1:
                image = image.reduce(factor)
        pixels = pixels_of(image)
    if box is not None:
        height, width = pixels.shape[:2]
        x1, y1, x2, y2 = map(int, box)
        pixels = pixels[y1:y2, x1:x2]
        if not pixels.size:
            raise ValueError(
                "The box (left, top, right, bottom) "
                f"{(x1, y1, x2, y2)} is outside of "
                f"t{_describe(file)[1:]}, which is {width} pixels wide and "
                f"{height} high."
            )
        height, width = pixels.shape[:2]
    if max(width, height) > MAX_SIDE_RATIO * min(width, height):
        raise ValueError(
            f"{_describe(file)} cannot be decoded: it is {width:,} pixels wide "
            f"and {height:,} high, and one side may be at most "
            f"{MAX_SIDE_RATIO} times as long as the other. Crop it, or leave "
            "it out of the data."
        )
    return pixels


def draft(image: Image, side: int) -> None:
    """Makes Pillow decode a JPEG at a smaller size; see `read_image`."""
    image.draft(None, (2 * side, 2 * side))


def pixels_of(image: Image) -> Pixels:
    is_gray = image.mode in ("1", "L", "LA")
    is_deep = image.mode == "I" and image.format == "TIFF"
    if is_deep or image.mode == "F":
        raise ValueError("its samples have 32 bits. Save it with 8 or 16 bits.")
    if image.mode.startswith("I"):
        samples = np.asarray(image)
        pixels = (samples >> 8).clip(0, 255).astype("uint8")
    else:
        mode = "L" if is_gray else "RGB"
        pixels = _array_of(image if image.mode == mode else image.convert(mode))
    # EXIF is read last, because in PNG it may follow the pixels. Pillow turns
    # TIFF images by itself.
    return upright(np.atleast_3d(pixels), exif_orientation(exif_of(image)))


def _array_of(image: Image) -> Pixels:
    """The pixels of an image, read in strips: Pillow copies them twice."""
    width, height = image.size
    rows = max(_STRIP_PIXELS // width, 1)
    if height <= rows:
        return np.asarray(image)
    pixels = np.empty((height, width, *((3,) * (image.mode == "RGB"))), "uint8")
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        pixels[top:bottom] = image.crop((0, top, width, bottom))
    return pixels


def exif_of(image: Image) -> bytes:
    """The EXIF segment; empty if there is none, where HEIC has None."""
    return image.info.get("exif") or b""


@contextlib.contextmanager
def open_checked(file: ImageFile) -> Iterator[Image]:
    """Opens an image file; any error while it is open names the file."""
    import PIL.Image

    try:
        with open_image(file) as image:
            if image.format == "EPS":  # Ghostscript would run it.
                raise ValueError("it is PostScript, a program. Save it as PNG.")
            # Pillow has the same limit, but users can change it.
            if math.prod(image.size) > MAX_PIXELS:
                raise PIL.Image.DecompressionBombError(str(image.size))
            yield image
    except Exception as error:
        raise ValueError(
            f"{_describe(file)} cannot be decoded: {_reason(file, error)}"
        ) from error


def open_image(file: ImageFile) -> Image:
    """Pillow's `open`, also for HEIC where pillow-heif is installed."""
    import PIL.Image

    if isinstance(file, str | os.PathLike):
        check_regular(file)  # Opening a pipe could block forever.
    try:
        return PIL.Image.open(file)
    except PIL.UnidentifiedImageError:
        if _start(file, 12)[4:] not in _HEIF:
            raise
    heif = import_extra("HEIC", "pillow_heif", "heif")
    heif.register_heif_opener()
    return PIL.Image.open(file)


def exif_orientation(exif: bytes) -> int:
    """The orientation that an EXIF block has, 1 to 8; 1 if it has none.

    Only EXIF counts, as in browsers, not the copy that XMP may contain.

    Reference:
        CIPA DC-008 (Exif 2.32), 4.6.4 A, tag 274.
    """
    tiff = exif.removeprefix(EXIF)
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    try:
        (start,) = struct.unpack_from(f"{order}4xI", tiff)
        (count,) = struct.unpack_from(f"{order}H", tiff, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, length = struct.unpack_from(f"{order}HHI", tiff, at)
            if tag == ORIENTATION:
                letter = {1: "B", 3: "H", 4: "I"}.get(kind)
                (value,) = struct.unpack_from(f"{order}{letter}", tiff, at + 8)
                return value if length == 1 and 1 <= value <= 8 else 1
    except struct.error:
        pass  # It ends too early, or has an unknown byte order or type.
    return 1


def upright(pixels: Pixels, orientation: int) -> Pixels:
    if orientation in TRANSPOSED:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in MIRRORED:
        pixels = pixels[:, ::-1]
    if orientation in FLIPPED:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _describe(file: ImageFile) -> str:
    if isinstance(file, str | os.PathLike):
        return f"The image file {os.fspath(file)!r}"
    return "The image file given as bytes"


def _reason(file: ImageFile, error: Exception) -> str:
    import PIL.Image

    if isinstance(error, PIL.Image.DecompressionBombError):
        return (
            f"it claims to have more than {MAX_PIXELS:,} pixels. Reduce its "
            f"size, or remove it. Pillow: {error}"
        )
    if isinstance(error, PIL.UnidentifiedImageError):
        start = _start(file, 12)
        if not start:
            return "it is empty (0 bytes). Replace it, or remove it."
        if start[4:] in _AVIF:
            return (
                "it is an AVIF file, which this version of Pillow cannot "
                'read. Use `pip install "pillow>=11.3"`.'
            )
    return (
        f"{type(error).__name__}: {error}. Replace the file, or leave it "
        "out of the data."
    )


def _start(file: ImageFile, size: int) -> bytes:
    """The first bytes of a file; -1 for all bytes."""
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:
            return opened.read(size)
    file.seek(0)
    start = file.read(size)
    file.seek(0)
    return start
