"""glyphs: the data set that is always there, drawn on this machine."""

import logging
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from keras_dml.data.cache.folder import cache_folder
from keras_dml.data.datasets import dataset
from keras_dml.data.glyph_drawing import (
    Drawings,
    draw_characters,
    drawing_digest,
    typefaces,
)
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits
from keras_dml.utils.files import atomic_file

logger = logging.getLogger(__name__)

# Of matplotlib 3.8 to 3.11: a little over 2,200.
_LEAST_CLASSES = 2000

_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataset(
    "glyphs",
    "2,200 characters in 16 typefaces, drawn on this machine",
    leave_out=["cache"],
)
def glyphs(cache: str | os.PathLike[str] | None = None) -> DataSplits:
    """Characters in the typefaces that matplotlib ships; no download.

    A class is a character, an image one typeface's drawing of it: light on
    dark, 48×48, gray. There are about 2,200 classes of 8 to 16 images, and
    27,000 images. It is fine-grained retrieval, letters with diacritics
    above all, and harder than a random split: classes are in the order of
    their code points, the first half for training and the second, with
    other scripts and symbols, for testing. A seeded fifth of the training
    classes is held out for validation.

    The sixteen typefaces for text are used: DejaVu Sans, Sans Mono and
    Serif and STIX General, each regular, bold, oblique and bold oblique.
    Left out are typefaces' drawings of a character that are equal to an
    earlier typeface's, or do not fit into the image; then characters with
    fewer than eight drawings, and those of which a drawing is, pixel for
    pixel, another character's of a lower code point (Greek Alpha, which is
    Latin A).

    The images are drawn once, in seconds, and kept in a file. It is made
    again when it is damaged, or when the typefaces or FreeType change.

    Args:
        cache: Folder for the file, by default `cache_folder()`.

    Returns:
        The splits. Classes are named as in `"A U+0041"`, images by the
        typeface, as in `"DejaVuSans-Bold"`.

    Raises:
        RuntimeError: If matplotlib's typefaces are not all there.
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
    digest = drawing_digest(files)
    kept = _load(file, digest)
    if kept is not None:
        return kept
    drawings = draw_characters(files)
    classes = len(np.unique(drawings.code_points))
    if classes < _LEAST_CLASSES:
        raise RuntimeError(
            "matplotlib's typefaces should draw more than "
            f"{_LEAST_CLASSES} characters. Received: {len(files)} typefaces, "
            f"{classes} characters. Install matplotlib again."
        )
    try:
        _save(file, digest, drawings)
    except OSError as error:
        logger.warning("The glyphs cannot be kept in %s: %s", file, error)
    return drawings


def _save(file: Path, digest: str, drawings: Drawings) -> None:
    arrays = {"digest": np.array(digest), **vars(drawings)}
    with atomic_file(file) as partial:
        np.savez_compressed(partial, **arrays)


def _load(file: Path, digest: str) -> Drawings | None:
    """What the file keeps, if it is whole and of these typefaces."""
    try:
        with file.open("rb") as opened, np.load(opened) as arrays:
            if str(arrays["digest"]) != digest:
                return None
            return Drawings(
                arrays["pixels"], arrays["code_points"], arrays["typefaces"]
            )
    except FileNotFoundError:
        return None
    except _DAMAGED as error:
        logger.warning("%s is damaged and is made again: %s", file, error)
        return None
