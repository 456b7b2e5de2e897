"""Writes small archives in the formats of the benchmarks."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

# Pixel (row, column) of every written image has these channels, so that a
# cropped image says where it was cut.
HEIGHT, WIDTH = 9, 12
PIXELS = np.stack(
    np.broadcast_arrays(
        np.arange(HEIGHT)[:, None] * 20, np.arange(WIDTH)[None] * 20, 7
    ),
    axis=-1,
).astype(np.uint8)


def write_image(path: Path) -> None:
    """Writes PNG content under any name, so that pixels are exact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(PIXELS).save(path, format="png")


def write_lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("".join(line + end for line in lines)).encode())


def write_stray(folder: Path, *names: str) -> None:
    """Writes the files that macOS leaves in archives."""
    for name in names:
        (folder / f"._{name}").write_bytes(b"\0\5\26\7Mac OS X")
