"""The glyphs data set and its cache."""

import hashlib
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from keras_dml.data import DataSplits, ImageSet, concatenate, glyphs
from keras_dml.data._glyphs import Drawings, drawing_digest, typefaces
from keras_dml.data.hashing import digest

# `keras_dml.data.glyphs` is the function.
MODULE = importlib.import_module("keras_dml.data._glyphs")

# Classes, images and a digest of the pixels, by what they depend on.
KNOWN = {
    # matplotlib 3.11's typefaces with Pillow 13's FreeType.
    "1705926c41585460e0b22c66d2f0b53fb1bf33b6f1ccffb72d2931a9fc6e0b09": (
        2206,
        26_623,
        "a43e3472517ca914",
    ),
}

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> DataSplits:
    return glyphs(tmp_path_factory.mktemp("glyphs"))


@pytest.fixture(scope="module")
def everything(splits: DataSplits) -> ImageSet:
    return concatenate((splits.trainval, splits.test))


def code_of(name: str) -> int:
    character, code = name.rsplit(" U+", 1)
    assert character == chr(int(code, 16))
    return int(code, 16)


@slow
def test_glyphs_have_the_known_size_and_digest(everything: ImageSet) -> None:
    assert 2000 < everything.num_classes < 2500
    assert 24_000 < len(everything) < 30_000
    sizes = np.bincount(everything.labels)
    assert 8 <= sizes.min() <= sizes.max() <= 16
    expected = KNOWN.get(drawing_digest(typefaces()))
    if expected is not None:
        order = np.argsort(everything.labels, kind="stable")
        pixels = np.ascontiguousarray(everything.images[order])
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        summary = (everything.num_classes, len(everything), digest[:16])
        assert summary == expected


@slow
def test_drawings_are_distinct(everything: ImageSet) -> None:
    assert len({x.tobytes() for x in everything.pixels}) == len(everything)
    assert everything.pixels.any(axis=(1, 2)).all()


@slow
def test_classes_are_in_code_point_order(splits: DataSplits) -> None:
    codes = {
        split: sorted(code_of(n) for n in getattr(splits, split).names.values())
        for split in ("train", "validation", "trainval", "test")
    }
    assert codes["trainval"] == sorted(codes["train"] + codes["validation"])
    assert codes["trainval"][-1] < codes["test"][0]
    assert abs(len(codes["trainval"]) - len(codes["test"])) <= 1
    share = len(codes["validation"]) / len(codes["trainval"])
    assert share == pytest.approx(0.2, abs=0.001)
    for split in ("train", "validation", "test"):
        labels = getattr(splits, split).classes
        names = getattr(splits, split).names
        in_order = [code_of(names[int(label)]) for label in labels]
        assert in_order == codes[split]


@slow
def test_ambiguous_characters_are_left_out(everything: ImageSet) -> None:
    codes = {code_of(name) for name in everything.names.values()}
    assert {ord(c) for c in "AZaz09éßΩЖ€∑"} <= codes
    # Greek and Cyrillic capitals that are Latin ones; spaces, controls and
    # private use.
    assert not {0x391, 0x410, 0x20, 0xA0, 0xAD, 0x200B, 0xE000} & codes


@slow
def test_images_match_pillow(everything: ImageSet) -> None:
    """The reference is drawn on a large canvas and then cropped."""
    fonts = {path.stem: str(path) for path in typefaces()}
    assert set(everything.ids) <= set(fonts)
    for row in range(0, len(everything), 501):
        name = everything.names[int(everything.labels[row])]
        font = ImageFont.truetype(
            fonts[everything.ids[row]], 32, layout_engine=0
        )
        canvas = Image.new("L", (200, 48))
        ImageDraw.Draw(canvas).text(
            (100, 36), name[0], fill=255, font=font, anchor="ls"
        )
        left, _, right, _ = canvas.getbbox() or (0, 0, 0, 0)
        start = left - (48 - (right - left)) // 2
        expected = np.asarray(canvas)[:, start : start + 48]
        np.testing.assert_array_equal(everything.read(row)[..., 0], expected)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawings]:
    """Replaces the drawing by a quick one; lists its results."""
    calls: list[Drawings] = []

    def draw(files: Any) -> Drawings:
        count = 2001
        pixels = np.zeros((count, 48, 48), np.uint8)
        pixels[:, 0, 0] = len(calls) + 1
        codes = np.arange(count) + 0x100
        calls.append(Drawings(pixels, codes, codes * 0))
        return calls[-1]

    monkeypatch.setattr(MODULE, "draw_characters", draw)
    return calls


def version_of(splits: DataSplits) -> int:
    """Number of the drawing that these splits came from."""
    return int(splits.test.read(0)[0, 0, 0])


def test_glyphs_are_drawn_once(drawn: list[Drawings], tmp_path: Path) -> None:
    first, second = glyphs(tmp_path), glyphs(tmp_path)
    assert len(drawn) == 1
    for split in ("train", "validation", "test"):
        a, b = first.part(split), second.part(split)
        np.testing.assert_array_equal(a.pixels, b.pixels)
        assert (digest(a), a.names) == (digest(b), b.names)
    assert [x.name for x in tmp_path.iterdir()] == ["glyphs.npz"]


@pytest.mark.parametrize("is_cut", [True, False])
def test_damaged_file_is_drawn_again(drawn, tmp_path, is_cut) -> None:
    glyphs(tmp_path)
    file = tmp_path / "glyphs.npz"
    content = file.read_bytes()
    half = len(content) // 2
    rest = bytes(50) + content[half + 50 :]
    file.write_bytes(content[:half] + (b"" if is_cut else rest))
    assert [version_of(glyphs(tmp_path)) for _ in range(2)] == [2, 2]
    assert len(drawn) == 2


def test_other_typefaces_are_drawn_again(drawn, tmp_path, monkeypatch) -> None:
    glyphs(tmp_path)
    monkeypatch.setattr(MODULE, "drawing_digest", lambda files: "other")
    assert [version_of(glyphs(tmp_path)) for _ in range(2)] == [2, 2]


def test_unwritable_folder_leaves_a_warning(drawn, tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("no folder")
    splits = glyphs(tmp_path / "file" / "folder")
    assert version_of(splits) == 1
    assert "cannot be stored" in caplog.text


def test_missing_typefaces_raise(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(MODULE, "typefaces", lambda: typefaces()[-8:-4])
    empty = Drawings(
        np.zeros((0, 48, 48), np.uint8), np.zeros(0, int), np.zeros(0, int)
    )
    monkeypatch.setattr(MODULE, "draw_characters", lambda files: empty)
    with pytest.raises(RuntimeError, match="4 typefaces, 0 characters"):
        glyphs(tmp_path)
