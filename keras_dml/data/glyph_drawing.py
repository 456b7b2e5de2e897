"""Drawing of characters in the typefaces that matplotlib ships."""

import hashlib
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_dml.data.fields import Pixels
from keras_dml.utils.types import Rows

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

SIZE = 48
"""Side of a drawing, in pixels."""

# The em of a drawing, and the row that its baseline is on, in pixels. All
# but a few dozen drawings fit, descenders and stacked accents included.
_EM = 32
_BASELINE = 36

_LEAST_TYPEFACES = 8

# Controls, format characters, private use and surrogates; spaces.
_NOT_DRAWN = ("C", "Z")

# Raise it when drawings change, so that those kept from before are not used.
_VERSION = 1


@dataclass(frozen=True)
class Drawings:
    """Drawings of characters, sorted by code point, then by typeface.

    Attributes:
        pixels: Light on dark, (N, 48, 48) uint8.
        code_points: Unicode code point of every drawing, (N,).
        typefaces: Number of the typeface of every drawing, (N,).
    """

    pixels: Pixels
    code_points: Rows
    typefaces: Rows


def typefaces() -> list[Path]:
    """Files of the typefaces for text, in the order of their names."""
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    found = [*folder.glob("DejaVuS*.ttf"), *folder.glob("STIXGeneral*.ttf")]
    return sorted(path for path in found if "Display" not in path.name)


def drawing_digest(files: list[Path]) -> str:
    """A digest of all that the drawings depend on."""
    from PIL import features

    digest = hashlib.sha256(
        f"{_VERSION} {features.version('freetype2')}".encode()
    )
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def draw_characters(files: list[Path]) -> Drawings:
    """Draws the characters that at least eight typefaces draw differently.

    A typeface counts for a character where its drawing is not empty, fits
    into the image, and is not the drawing of the same character by an
    earlier typeface, as an oblique's arrow often is. A character with a
    drawing that is also one of a character with a lower code point is left
    out.
    """
    characters = [_coverage(path) for path in files]
    counts = Counter(code for codes in characters for code in codes)
    common = sorted(c for c, n in counts.items() if n >= _LEAST_TYPEFACES)
    fonts = [_open(path) for path in files]
    seen: set[bytes] = set()
    kept: list[tuple[int, int, bytes]] = []
    for code in common:
        typeface_of: dict[bytes, int] = {}
        for typeface, font in enumerate(fonts):
            if code in characters[typeface]:
                drawing = _draw(font, chr(code))
                typeface_of.setdefault(drawing, typeface)
        typeface_of.pop(b"", None)
        is_new = seen.isdisjoint(typeface_of)
        seen.update(typeface_of)
        if is_new and len(typeface_of) >= _LEAST_TYPEFACES:
            kept.extend((code, t, d) for d, t in typeface_of.items())
    code_points, numbers, drawings = zip(*kept, strict=True)
    pixels = np.frombuffer(b"".join(drawings), np.uint8)
    return Drawings(
        pixels.reshape(-1, SIZE, SIZE),
        np.array(code_points, np.int64),
        np.array(numbers, np.int64),
    )


def _coverage(path: Path) -> frozenset[int]:
    """Code points that a typeface has, of characters that are drawn."""
    from matplotlib.ft2font import FT2Font

    return frozenset(
        code
        for code in FT2Font(str(path)).get_charmap()
        if unicodedata.category(chr(code))[0] not in _NOT_DRAWN
    )


def _open(path: Path) -> "FreeTypeFont":
    from PIL import ImageFont

    # The basic layout draws each character by itself, and is always there.
    return ImageFont.truetype(
        str(path), _EM, layout_engine=ImageFont.Layout.BASIC
    )


def _draw(font: "FreeTypeFont", character: str) -> bytes:
    """A drawing's pixels; none if it is empty or does not fit.

    The ink is centered from left to right, and sits on the baseline.
    """
    mask, (_, above) = font.getmask2(character, mode="L", anchor="ls")
    width, height = mask.size
    ink = np.frombuffer(bytes(mask), np.uint8).reshape(height, width)
    rows = np.flatnonzero(ink.any(axis=1))
    columns = np.flatnonzero(ink.any(axis=0))
    if len(rows) == 0:
        return b""
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = ink.shape
    top = int(_BASELINE + above + rows[0])
    left = (SIZE - width) // 2
    if left < 0 or top < 0 or top + height > SIZE:
        return b""
    drawing = np.zeros((SIZE, SIZE), np.uint8)
    drawing[top : top + height, left : left + width] = ink
    return drawing.tobytes()
