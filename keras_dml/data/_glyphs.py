"""The glyphs data set: characters, drawn in matplotlib's typefaces."""

import hashlib
import logging
import os
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_dml.data.caching import cache_folder
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.data.validation import Pixels
from keras_dml.utils.files import atomic_file
from keras_dml.utils.progress import track
from keras_dml.utils.types import Rows

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

logger = logging.getLogger(__name__)

SIZE = 48
"""Side length of a drawing, in pixels."""

# The em of a drawing, and the row that its baseline is on, in pixels. All
# but a few dozen drawings fit, descenders and stacked accents included.
_EM = 32
_BASELINE = 36

_MIN_TYPEFACES = 8

# Matplotlib 3.8 to 3.11 has a little over 2,200.
_MIN_CLASSES = 2000

# Unicode categories: controls and other codes that have no glyph; spaces.
_NOT_DRAWN = ("C", "Z")

# Raise it when drawings change, so that stored ones are replaced.
_VERSION = 1


@dataclass(frozen=True)
class Drawings:
    """Drawings of characters, sorted by code point, then by typeface."""

    pixels: Pixels  # Light on dark, (N, 48, 48) uint8.
    code_points: Rows  # (N,).
    typefaces: Rows  # Numbers, (N,).


@dataset(
    "glyphs",
    "2,200 characters in 16 typefaces, generated locally",
    leave_out=["cache"],
)
def glyphs(cache: str | os.PathLike[str] | None = None) -> DataSplits:
    """Characters, drawn in the typefaces of matplotlib; no download.

    Each class is a character, and each image is a drawing of it in one
    typeface: light on dark, 48×48, gray. There are about 2,200 classes of 8 to
    16 images, and 27,000 images. The task is fine-grained retrieval, mostly of
    letters with diacritics, and harder than with a random split: classes are
    in the order of their code points, the first half for training and the
    second half, with other scripts and symbols, for testing. A seeded fifth of
    the training classes is held out for validation.

    The typefaces are the sixteen for text: DejaVu Sans, Sans Mono and Serif
    and STIX General, each regular, bold, oblique and bold oblique. Drawings of
    a character that are equal to those of an earlier typeface, or do not fit
    into the image, are excluded. So are characters with fewer than eight
    drawings, and characters with a drawing that is identical, pixel for pixel,
    to that of a character with a lower code point (Greek Alpha, which looks
    like Latin A).

    The images are drawn once, in seconds, and stored in a file. The file is
    recreated if it is damaged, or if the typefaces or FreeType change.

    Args:
        cache: Folder for the file, by default `cache_folder()`.

    Returns:
        The splits. Classes have names like `"A U+0041"`, and images have the
        name of the typeface, like `"DejaVuSans-Bold"`.

    Raises:
        RuntimeError: If some of matplotlib's typefaces are missing.
    """
    files = typefaces()
    folder = cache_folder() if cache is None else Path(cache)
    drawings = _drawings(files, folder / "glyphs.npz")
    code_points, labels = np.unique(drawings.code_points, return_inverse=True)
    names = [path.stem for path in files]
    images = ImageSet(
        drawings.pixels,
        labels,
        names=[f"{chr(code)} U+{code:04X}" for code in code_points],
        ids=[names[typeface] for typeface in drawings.typefaces],
    )
    return DataSplits.by_class(images, "glyphs")


def _drawings(files: list[Path], file: Path) -> Drawings:
    """Drawings from a file that is valid for these typefaces, or new ones."""
    digest = drawing_digest(files)
    try:
        with file.open("rb") as opened, np.load(opened) as npz:
            if str(npz["digest"]) == digest:
                return Drawings(
                    npz["pixels"], npz["code_points"], npz["typefaces"]
                )
    except FileNotFoundError:
        pass
    # Each part of a damaged archive raises errors of its own kinds.
    except Exception as error:
        logger.warning("%s is damaged and is created again: %s", file, error)
    drawings = draw_characters(files)
    classes = len(np.unique(drawings.code_points))
    if classes < _MIN_CLASSES:
        raise RuntimeError(
            "matplotlib's typefaces must contain more than "
            f"{_MIN_CLASSES} characters. Received: {len(files)} typefaces, "
            f"{classes} characters. Reinstall matplotlib."
        )
    try:
        with atomic_file(file) as partial:
            arrays = {"digest": np.array(digest), **vars(drawings)}
            np.savez_compressed(partial, **arrays)
    except OSError as error:
        logger.warning("The glyphs cannot be stored in %s: %s", file, error)
    return drawings


def typefaces() -> list[Path]:
    """Files of the typefaces for text, sorted by name."""
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    files = [*folder.glob("DejaVuS*.ttf"), *folder.glob("STIXGeneral*.ttf")]
    return sorted(path for path in files if "Display" not in path.name)


def drawing_digest(files: list[Path]) -> str:
    """A digest of everything that the drawings depend on."""
    from PIL import features

    freetype = features.version("freetype2")
    digest = hashlib.sha256(f"{_VERSION} {freetype}".encode())
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def draw_characters(files: list[Path]) -> Drawings:
    """Draws the characters that `glyphs` describes."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    characters = [
        {
            code
            for code in FT2Font(str(path)).get_charmap()
            if unicodedata.category(chr(code))[0] not in _NOT_DRAWN
        }
        for path in files
    ]
    counts = Counter(code for codes in characters for code in codes)
    common = sorted(c for c, n in counts.items() if n >= _MIN_TYPEFACES)
    # The basic layout draws each character by itself, and is always there.
    basic = ImageFont.Layout.BASIC
    fonts = [ImageFont.truetype(x, _EM, layout_engine=basic) for x in files]
    seen_drawings: set[bytes] = set()
    records: list[tuple[int, int, bytes]] = []
    for code in track(common, len(common), "Drawing glyphs"):
        typeface_of: dict[bytes, int] = {}
        for typeface, font in enumerate(fonts):
            if code in characters[typeface]:
                drawing = _draw(font, chr(code))
                typeface_of.setdefault(drawing, typeface)
        typeface_of.pop(b"", None)
        is_new = seen_drawings.isdisjoint(typeface_of)
        seen_drawings.update(typeface_of)
        if is_new and len(typeface_of) >= _MIN_TYPEFACES:
            records.extend((code, t, d) for d, t in typeface_of.items())
    code_points, numbers, drawings = zip(*records, strict=True)
    pixels = np.frombuffer(b"".join(drawings), np.uint8)
    return Drawings(
        pixels.reshape(-1, SIZE, SIZE),
        np.array(code_points, np.int64),
        np.array(numbers, np.int64),
    )


def _draw(font: "FreeTypeFont", character: str) -> bytes:
    """The pixels of a drawing, empty if it has no ink or does not fit."""
    mask, (_, above) = font.getmask2(character, mode="L", anchor="ls")
    width, height = mask.size
    ink = np.frombuffer(bytes(mask), np.uint8).reshape(height, width)
    rows = np.flatnonzero(ink.any(axis=1))
    columns = np.flatnonzero(ink.any(axis=0))
    if len(rows) == 0:
        return b""
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = ink.shape
    y = int(_BASELINE + above + rows[0])
    x = (SIZE - width) // 2
    if x < 0 or y < 0 or y + height > SIZE:
        return b""
    drawing = np.zeros((SIZE, SIZE), np.uint8)
    drawing[y : y + height, x : x + width] = ink
    return drawing.tobytes()
