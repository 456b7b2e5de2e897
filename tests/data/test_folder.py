"""Image folders, including every kind of faulty content."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from keras_dml.cli import main
from keras_dml.data import (
    View,
    eval_batches,
    folder,
    image_folder,
    image_folder_splits,
)
from keras_dml.data.folder import EXTENSIONS, readable_extensions


def save(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i, name in enumerate(
        ["b/2.png", "b/10.jpg", "B/x.JPEG", "a b/é.bmp", "a b/z.gif"]
    ):
        save(tmp_path / name, i)
    (tmp_path / "b" / ".DS_Store").write_text("of macOS")
    return tmp_path


def test_folder_is_read_in_byte_order(root: Path) -> None:
    (root / "b" / "._2.png").write_text("a resource fork")
    save(root / ".hidden" / "1.png")
    images = image_folder(root)
    assert [*images.names.values()] == ["B", "a b", "b"]
    names = [os.path.relpath(path, root) for path in images.paths or ()]
    assert names == [
        "B/x.JPEG",
        "a b/z.gif",
        "a b/é.bmp",
        "b/10.jpg",
        "b/2.png",
    ]
    assert images.labels.tolist() == [0, 1, 1, 2, 2]


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "readable_extensions", lambda: EXTENSIONS)


@pytest.mark.usefixtures("without_heif")
def test_skipped_files_are_named(root: Path) -> None:
    for name in ("b/notes.txt", "b/1.heic", "B/2.HEIC", "B/3.heic", "plain"):
        (root / name).write_text("no image")
    save(root / "b" / "inner" / "1.png")
    with pytest.warns(UserWarning, match="^Skipped in ") as caught:
        images = image_folder(root)
    assert len(images) == 5
    (message,) = (str(x.message) for x in caught)
    assert message.count("(") == 4
    assert f"1 ({root / 'b' / 'inner'}): folders inside class" in message
    assert "3 (" in message
    assert (
        f"{root / 'B' / '3.heic'}, {root / 'b' / '1.heic'}): .heic files "
        in message
    )
    assert 'can be read after `pip install "keras-dml[heif]"`.' in message
    assert f"1 ({root / 'b' / 'notes.txt'}): .txt: not an image." in message
    assert f"1 ({root / 'plain'}): without an extension: not" in message


@pytest.mark.usefixtures("without_heif")
def test_folder_of_other_files_raises(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "1.heic").write_text("no image")
    with pytest.raises(ValueError, match=r"1 .*: \.heic .*keras-dml\[heif\]"):
        image_folder(tmp_path)


def test_nested_folders_raise_with_a_way_out(tmp_path: Path) -> None:
    for name in ("animals/okapi", "animals/crow", "plants/fern"):
        save(tmp_path / name / "1.png")
    with pytest.raises(ValueError, match="folders inside class") as caught:
        image_folder(tmp_path)
    message = str(caught.value)
    assert f"Use path={str(tmp_path / 'animals')!r} if" in message
    assert "keras_dml.data.table" in message
    assert "without an extension" not in message
    assert image_folder(tmp_path / "animals").num_classes == 2


def test_every_extension_is_read(tmp_path: Path) -> None:
    for i, extension in enumerate((*EXTENSIONS, ".TIF", ".WebP")):
        save(tmp_path / "class" / f"{i:02}{extension}", 9 * i)
    images = image_folder(tmp_path)
    assert len(images) == len(EXTENSIONS) + 2
    (seen,) = eval_batches(images, View((4, 4), 3))
    for i, view in enumerate(seen):
        np.testing.assert_array_equal(view, images.read(i) + np.zeros(3))
        assert abs(images.read(i).mean() - 9 * i) <= 1


@pytest.mark.parametrize("extension", [".heic", ".avif"])
@pytest.mark.parametrize("orientation", [None, 6])
def test_heic_and_avif_are_read_upright(
    tmp_path, extension, orientation
) -> None:
    if extension not in readable_extensions():
        pytest.skip(f"nothing reads {extension} here")
    if extension == ".heic":
        import pillow_heif

        pillow_heif.register_heif_opener()
    path = tmp_path / "class" / f"1{extension}"
    path.parent.mkdir()
    more = {}
    if orientation is not None:
        exif = Image.Exif()
        exif[274] = orientation
        more = {"exif": exif.tobytes()}
    Image.new("RGB", (16, 24), (200, 90, 30)).save(path, **more)
    images = image_folder(tmp_path)
    size = (16, 24) if orientation == 6 else (24, 16)
    (seen,) = eval_batches(images, View(size, 3))
    np.testing.assert_array_equal(seen[0], images.read(0))
    assert np.abs(images.read(0) - [200.0, 90, 30]).max() < 12


def test_long_lists_are_cut_short(root: Path) -> None:
    for i in range(25):
        (root / "b" / f"bad{i}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"^Skipped .*: 25 \(.* and 5 more"):
        image_folder(root)
    assert len(image_folder(root, verify=False)) == 30


def test_stray_images_are_named(root: Path) -> None:
    save(root / "stray.png")
    with pytest.warns(UserWarning, match=r"1 \(.*stray.png\): images dir"):
        assert len(image_folder(root)) == 5
    with pytest.raises(ValueError, match="Use the parent folder if 'B'"):
        image_folder(root / "B")


def test_folder_without_images_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no image in any of its"):
        image_folder(tmp_path)
    file = tmp_path / "class" / "bad.jpg"
    file.parent.mkdir()
    file.write_bytes(b"bad")
    with pytest.raises(FileNotFoundError, match="which is not a folder"):
        image_folder(file)
    with pytest.raises(ValueError, match=r"no image .*bad\.jpg\): cannot be"):
        image_folder(tmp_path)
    with pytest.raises(ValueError, match=r"one of \('skip', 'raise'\)"):
        image_folder(tmp_path, unreadable="ignore")


def test_folder_splits_by_class(tmp_path: Path) -> None:
    for name in "abcdefg":
        save(tmp_path / name / "1.png")
    splits = image_folder_splits(tmp_path, train_classes=5, seed=2)
    assert splits.name == tmp_path.name
    assert [*splits.test.names.values()] == ["f", "g"]
    assert sorted(splits.trainval.names.values()) == list("abcde")
    assert splits.validation.num_classes == 2


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
    "loop.jpg": lambda path: path.symlink_to(path.name),
    "nowhere.jpg": lambda path: path.symlink_to("nothing"),
    "pipe.jpg": os.mkfifo,
    "forbidden.jpg": forbidden,
}

NOT_FILES = ("folder.jpg", "loop.jpg", "nowhere.jpg", "pipe.jpg")

RUNS = sorted(set(BAD) - ({"forbidden.jpg"} if os.getuid() == 0 else set()))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Four classes of three good images, of every format."""
    for i in range(12):
        kind = ("JPEG", "PNG", "BMP", "GIF")[i % 4]
        file = tmp_path / "images" / f"class {i % 4}" / f"{i}.{kind.lower()}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(kind))
    return tmp_path / "images"


@pytest.mark.parametrize("name", RUNS)
def test_bad_file_is_named_and_left_out(hostile: Path, name: str) -> None:
    BAD[name](hostile / "class 1" / name)
    with pytest.warns(UserWarning, match=rf"1 \([^:]*{name}\): cannot be"):
        images = image_folder(hostile)
    assert len(images) == 12
    with pytest.raises(ValueError, match=rf"{name}' cannot be decoded"):
        image_folder(hostile, unreadable="raise")


@pytest.mark.parametrize("name", NOT_FILES)
def test_path_that_is_no_file_is_left_out_unverified(
    hostile: Path, name
) -> None:
    BAD[name](hostile / "class 1" / name)
    with pytest.warns(UserWarning, match=rf"1 \([^:]*{name}\): cannot be"):
        assert len(image_folder(hostile, verify=False)) == 12


def test_circular_links_are_skipped(hostile: Path) -> None:
    (hostile / "loop").symlink_to("loop")
    (hostile / "again").symlink_to(".", target_is_directory=True)
    with pytest.warns(UserWarning, match="^Skipped in ") as caught:
        assert len(image_folder(hostile)) == 12
    message = str(caught[0].message)
    assert str(hostile / "loop") in message
    assert f"1 ({hostile / 'again'}): folders without a readable" in message


def test_class_folder_may_have_an_image_extension(hostile: Path) -> None:
    (hostile / "class 0").rename(hostile / "x.jpg")
    images = image_folder(hostile)
    assert len(images) == 12
    assert "x.jpg" in images.names.values()


def test_check_names_odd_files_and_folders(hostile: Path) -> None:
    for name in RUNS:
        BAD[name](hostile / "class 1" / name)
    (hostile / "empty class").mkdir()
    (hostile / "stray.png").write_bytes(encoded("PNG"))
    (hostile / "notes.txt").write_text("no image")
    result = CliRunner().invoke(main, ["data", "check", str(hostile)])
    assert result.exit_code == 0, result.output
    for name in (*RUNS, "empty class", "stray.png"):
        assert name in result.output
    assert "notes.txt" in result.output
