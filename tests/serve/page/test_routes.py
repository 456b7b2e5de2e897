"""Files of the page, headers and thumbnails."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_dml.search import Index
from keras_dml.serve.page import read_assets
from tests.serve.conftest import HOSTILE, client_of, picture


@pytest.fixture(scope="module")
def asked(pictured):
    with client_of(pictured) as opened:
        yield opened


@pytest.fixture(scope="module")
def few(current, tmp_path_factory):
    """A gallery whose rows have pictures in all kinds of places."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "secret.txt").write_text("not for everyone")
    (folder / "own.png").write_bytes(picture())
    files = ("own.png", "gone.png", "secret.txt")
    columns = {
        "path": [*(str(folder / x) for x in files), None, None, None],
        "box": [[0, 0, 8, 4], *[None] * 5],
        "thumbnail": [
            *[None] * 3,
            "data:image/png;base64,iVBORw0KGgo=",
            "data:image/svg+xml;base64,PHN2Zy8+",
            "https://example.org/x.png",
        ],
    }
    keys = ["own", "gone", "secret", "small", "svg", "far"]
    index = Index(np.eye(6, 8, dtype="float32"), columns, keys=keys)
    with client_of(replace(current, index=index)) as opened:
        yield opened


def test_headers_forbid_external_content(asked) -> None:
    for path in ("/", "/page/about", "/page/assets/page.js"):
        headers = asked.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_assets_name_no_external_content() -> None:
    for name, (content, kind) in read_assets().items():
        text = content.decode()
        allowed = "http://www.w3.org/2000/svg"
        assert "://" not in text.replace(allowed, ""), name
        if kind.startswith("text/html"):
            # The policy would forbid what stands in the page itself.
            assert not re.search(r"\son\w+=|\sstyle=|<style", text)
            assert "<script>" not in text
        if kind.startswith("text/javascript"):
            assert "innerHTML" not in text and "eval(" not in text


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.controls: list[dict[str, str | None]] = []
        self.labelled: set[str | None] = set()

    def handle_starttag(self, tag, attrs) -> None:
        attributes = dict(attrs)
        self.found += [
            x for x in (attributes.get("src"), attributes.get("href")) if x
        ]
        if tag == "label":
            self.labelled.add(attributes["for"])
        if tag in ("input", "select"):
            self.controls.append(attributes)


def test_page_has_all_its_files_and_labels(asked) -> None:
    parser = _Links()
    parser.feed(asked.get("/").text)
    linked = [x for x in parser.found if x.startswith("page/assets/")]
    assert len(linked) >= 4
    modules = [f"page/assets/{x}" for x in read_assets() if x.endswith(".js")]
    for path in {*linked, *modules}:
        assert asked.get(f"/{path}").status_code == 200
    assert {x["id"] for x in parser.controls} <= parser.labelled


@pytest.mark.parametrize(
    "path",
    [
        "/page/assets/none.js",
        "/page/assets/..%2f__init__.py",
        "/page/assets/%2e%2e/about.py",
        "/page/assets//etc/passwd",
    ],
)
def test_other_files_are_not_served(asked, path) -> None:
    assert asked.get(path).status_code == 404


def test_about_describes_model_and_gallery(asked) -> None:
    answer = asked.get("/page/about").json()
    gallery = answer["gallery"]
    assert gallery["rows"] == 48
    assert 0 < gallery["threshold"] < 1
    assert "not in the gallery of 48 rows" in gallery["threshold_meaning"]
    columns = {x["name"]: x for x in gallery["columns"]}
    kinds = {x: y["kind"] for x, y in columns.items()}
    assert kinds == {
        "name": "text", "label": "number", "price": "number",
        "new": "boolean", "path": "text",
    }  # fmt: skip
    assert HOSTILE in columns["name"]["values"]
    assert columns["label"]["values"] == []
    assert (answer["model"], answer["refusal"]) == ("glyphs", None)
    names = [x["file"] for x in gallery["examples"]]
    assert names == [f"{row}.png" for row in range(0, 48, 8)]


def test_thumbnail_shows_a_file_a_box_or_the_stored_one(asked, few) -> None:
    whole, part, stored_thumbnail = (
        client.get("/page/thumbnail", params={"key": key})
        for client, key in ((asked, "3"), (few, '"own"'), (few, '"small"'))
    )
    assert whole.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(whole.content)).size == (16, 16)
    assert Image.open(io.BytesIO(part.content)).size == (8, 4)
    assert stored_thumbnail.headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    ("key", "status"),
    [
        *[(f'"{x}"', 404) for x in ("gone", "secret", "svg", "far", "none")],
        ('"../secret.txt"', 404),
        *[(x, 400) for x in ("3", "", "own", "[1]", "[" * 20_000)],
    ],
)
def test_thumbnail_of_a_row_without_a_picture_fails(few, key, status) -> None:
    answer = few.get("/page/thumbnail", params={"key": key})
    assert answer.status_code == status
    assert "not for everyone" not in answer.text
    assert answer.json()["error"]


def test_thumbnail_follows_the_current_file(asked, pictured) -> None:
    before = asked.get("/page/thumbnail", params={"key": "7"}).content
    Path(pictured.index[7]["path"]).write_bytes(picture(40))
    after = asked.get("/page/thumbnail", params={"key": "7"}).content
    assert before != after
