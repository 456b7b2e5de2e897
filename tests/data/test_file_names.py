"""Names of files that are not in UTF-8."""

import os

import numpy as np
import pytest
from PIL import Image

from keras_dml.data import ImageSet, image_folder


@pytest.fixture
def folder(tmp_path):
    """Two classes; a file of the first and the third class are misnamed."""
    for name in (b"a", b"b", b"\xff"):
        place = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(place)
        for number in range(3):
            file = b"%d.png" % number
            if (name, number) == (b"a", 1):
                file = b"\xe9\xff.png"
            with open(place + b"/" + file, "wb") as stream:
                Image.fromarray(np.zeros((4, 4), "uint8")).save(stream, "png")
    return tmp_path


def test_misnamed_files_are_skipped_and_named(folder) -> None:
    with pytest.warns(UserWarning, match="not in UTF-8. Rename it") as said:
        images = image_folder(folder)
    assert [int((images.labels == x).sum()) for x in range(2)] == [2, 3]
    assert dict(images.names) == {0: "a", 1: "b"}
    message = str(said[0].message)
    assert "4 (" in message and r"a/\udce9\udcff.png" in message
    message.encode()  # It can be printed.


@pytest.mark.parametrize("strict", [True, False])
def test_strict_loading_raises_on_misnamed_files(folder, strict) -> None:
    with pytest.raises(ValueError, match="UTF-8.*Rename"):
        if strict:
            image_folder(folder, unreadable="raise")
        ImageSet([os.fsdecode(b"a/\xe9\xff.png")])
