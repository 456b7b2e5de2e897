"""The page of results: safe, whole, and told apart without pictures."""

import os
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_dml.cli import sources
from keras_dml.data import ImageSet
from keras_dml.reports.search_page import results_page
from keras_dml.search import Index

NAME = '"><img src=x onerror=alert(1)>&.png'
CLASS = "<script>alert('x')</script>"


class Reader(HTMLParser):
    """Tags with their attributes, and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data) -> None:
        self.text += data


def write(path: Path) -> str:
    pixels = np.random.default_rng(0).integers(256, size=(300, 200, 3))
    Image.fromarray(pixels.astype("uint8")).save(path)
    return str(path)


@pytest.fixture
def page(tmp_path) -> Reader:
    paths = [write(tmp_path / NAME), str(tmp_path / "gone.png"), None,
             write(tmp_path / os.fsdecode(b"\xff.png"))]  # fmt: skip
    index = Index(
        [[1, 0], [0.9, 0.1], [0, 1], [-1, 0]],
        {"path": paths, "name": [CLASS, "b", None, "d"], "label": [0, 1, 2, 3]},
    )
    queries = [tmp_path / NAME, tmp_path / "gone.png"]
    hits = index.search([[1, 0], [-0.5, -1]], 4, threshold=0.95)
    reader = Reader()
    text = results_page(queries, hits)
    text.encode("utf-8")
    reader.feed(text)
    return reader


def test_names_are_text_and_nothing_else(page) -> None:
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p",
        "section", "ul", "li", "figure", "figcaption", "img", "div",
        "strong", "span", "br", "link", "header", "main",
    }  # fmt: skip
    assert not any(name.startswith("on") for _, x in page.tags for name in x)
    assert NAME in page.text
    assert CLASS in page.text


def test_nothing_is_fetched(page) -> None:
    pictures = [x for tag, x in page.tags if tag == "img"]
    assert all(x["src"].startswith("data:image/jpeg;base64,") for x in pictures)
    policy = next(x["content"] for tag, x in page.tags if "http-equiv" in x)
    assert "default-src 'none'" in policy


def test_pictures_have_texts(page) -> None:
    alts = [x["alt"] for tag, x in page.tags if tag == "img"]
    assert alts[0] == f"Query: {NAME}"
    assert alts[1] == f"Result 1: {CLASS}, similarity 1.0000"
    assert "file cannot be read" in page.text
    assert "no file" in page.text


def test_scores_and_verdicts(page) -> None:
    assert "Scores of 0.9500 and more are matches." in page.text
    assert page.text.count("Queryhas a match") == 1
    assert page.text.count("Queryhas no match") == 1
    assert "2. b0.9939 matchgone.png" in page.text
    figures = [x.get("class") for tag, x in page.tags if tag == "figure"]
    assert figures == ["chosen", *4 * [None]] * 2


def test_it_fits_a_telephone_and_the_dark(page) -> None:
    assert ("meta", {"name": "viewport", "content": "width=device-width, "
            "initial-scale=1"}) in page.tags  # fmt: skip
    assert "prefers-color-scheme: dark" in page.text


def test_thumbnails_stand_for_images_in_no_file(tmp_path) -> None:
    data = ImageSet(np.zeros((2, 8, 8, 1), np.uint8), np.array([0, 1]))
    column = sources.thumbnails(data)
    column["thumbnail"][1] = 'https://example.org/"x.jpg'
    index = Index(np.eye(2), column)
    query = write(tmp_path / "query.png")
    reader = Reader()
    reader.feed(results_page([query], index.search([1, 0], 2)))
    pictures = [x["src"] for tag, x in reader.tags if tag == "img"]
    # The page asks for nothing outside it.
    assert pictures[1:] == column["thumbnail"][:1]
    assert sources.thumbnails([query]) == {}
    assert sources.thumbnails(ImageSet([query], np.array([0]))) == {}
