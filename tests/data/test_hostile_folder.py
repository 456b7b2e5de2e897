"""A folder with everything in it that goes wrong, from end to end."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from keras_dml.cli import main
from keras_dml.data import ClassBalanced, ImageSet, image_folder, pipeline
from keras_dml.evaluation import embed


def encoded(kind: str) -> bytes:
    rng = np.random.default_rng(1)
    coarse = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((30, 24))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def truncated(path: Path, kind: str) -> None:
    content = encoded(kind)
    path.write_bytes(content[: len(content) // 2])


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def forbidden(path: Path) -> None:
    path.write_bytes(encoded("JPEG"))
    path.chmod(0)


BAD: dict[str, Callable[[Path], object]] = {
    "truncated.png": lambda path: truncated(path, "PNG"),
    "truncated.jpg": lambda path: truncated(path, "JPEG"),
    "empty.jpg": lambda path: path.write_bytes(b""),
    "text.jpg": lambda path: path.write_text("not an image\n"),
    "head.jpg": lambda path: path.write_bytes(b"\xff\xd8\xff\xe0"),
    "text.gif": lambda path: path.write_text("GIF8 is how it starts"),
    # 51 times as wide as high.
    "long.png": lambda path: Image.new("RGB", (204, 4)).save(path),
    "long.jpg": lambda path: Image.new("RGB", (204, 4)).save(path),
    "folder.jpg": lambda path: path.mkdir(),
    "loop.jpg": loop,
    "nowhere.jpg": lambda path: path.symlink_to("nothing"),
    "pipe.jpg": os.mkfifo,
    "forbidden.jpg": forbidden,
}

NOT_FILES = ("folder.jpg", "loop.jpg", "nowhere.jpg", "pipe.jpg")

RUNS = sorted(set(BAD) - ({"forbidden.jpg"} if os.getuid() == 0 else set()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four classes of three good images, of every format."""
    for i in range(12):
        kind = ("JPEG", "PNG", "BMP", "GIF")[i % 4]
        file = tmp_path / "images" / f"class {i % 4}" / f"{i}.{kind.lower()}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(kind))
    return tmp_path / "images"


def model() -> keras.Model:
    inputs = keras.Input((16, 16, 3))
    pooled = keras.layers.AveragePooling2D(4)(inputs)
    return keras.Model(inputs, keras.layers.Flatten()(pooled))


def one_epoch(images: ImageSet) -> None:
    sampler = ClassBalanced(
        images.labels, classes_per_batch=2, images_per_class=3
    )
    for _ in pipeline(images, sampler, 16):
        pass


@pytest.mark.parametrize("name", RUNS)
def test_a_bad_file_is_named_and_left_out(folder: Path, name: str) -> None:
    BAD[name](folder / "class 1" / name)
    with pytest.warns(UserWarning, match=rf"1 \([^:]*{name}\): cannot be"):
        images = image_folder(folder)
    assert len(images) == 12
    with pytest.raises(ValueError, match=rf"{name}' cannot be decoded"):
        image_folder(folder, unreadable="raise")


@pytest.mark.parametrize("name", ["truncated.jpg", *NOT_FILES])
def test_a_bad_file_that_nobody_looked_for(folder: Path, name: str) -> None:
    bad = folder / "class 1" / name
    BAD[name](bad)
    if name in NOT_FILES:
        with pytest.warns(UserWarning, match=rf"1 \([^:]*{name}\): cannot be"):
            assert len(image_folder(folder, verify=False)) == 12
        return
    images = image_folder(folder, verify=False)
    assert len(images) == 13
    with pytest.raises(Exception, match=rf"{name}' cannot be decoded"):
        embed(model(), images)


def test_links_that_go_round(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "again").symlink_to(".", target_is_directory=True)
    with pytest.warns(UserWarning, match="^Skipped in ") as caught:
        assert len(image_folder(folder)) == 12
    message = str(caught[0].message)
    assert str(folder / "loop") in message
    assert f"1 ({folder / 'again'}): folders without a readable" in message


def test_a_class_that_is_called_as_an_image(folder: Path) -> None:
    (folder / "class 0").rename(folder / "x.jpg")
    images = image_folder(folder)
    assert len(images) == 12
    assert "x.jpg" in images.names.values()


def test_check_names_what_is_odd(folder: Path) -> None:
    for name in RUNS:
        BAD[name](folder / "class 1" / name)
    (folder / "empty class").mkdir()
    (folder / "stray.png").write_bytes(encoded("PNG"))
    (folder / "notes.txt").write_text("no image")
    result = CliRunner().invoke(main, ["data", "check", str(folder)])
    assert result.exit_code == 0, result.output
    for name in (*RUNS, "empty class", "stray.png"):
        assert name in result.output
    assert "notes.txt" in result.output
