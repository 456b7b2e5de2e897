"""The page of results: escaped, self-contained, readable without pictures."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_dml.data import ImageSet
from keras_dml.reports.html import results_page
from keras_dml.search import Index
from keras_dml.search.encoder import image_sets, thumbnail_column
from tests.reports.conftest import Page

NAME = '"><img src=x onerror=alert(1)>&.png'
CLASS = "<script>alert('x')</script>"


def write(path: Path, seed: int = 7) -> str:
    path = path if path.suffix else path.with_suffix(".png")
    pixels = np.random.default_rng(seed).integers(256, size=(300, 200, 3))
    Image.fromarray(pixels.astype("uint8")).save(path)
    return str(path)


@pytest.fixture
def page(tmp_path) -> Page:
    paths = [write(tmp_path / NAME), str(tmp_path / "gone.png"), None,
             write(tmp_path / os.fsdecode(b"\xff.png"))]  # fmt: skip
    index = Index(
        [[1, 0], [0.9, 0.1], [0, 1], [-1, 0]],
        {"path": paths, "name": [CLASS, "b", None, "d"], "label": [0, 1, 2, 3]},
    )
    queries = [tmp_path / NAME, tmp_path / "gone.png"]
    hits = index.search([[1, 0], [-0.5, -1]], 4, threshold=0.95)
    text = results_page(queries, hits)
    text.encode("utf-8")
    return Page(text)


def test_names_are_escaped_and_nothing_is_fetched(page) -> None:
    assert {tag for tag, _ in page.elements} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p",
        "section", "ul", "li", "figure", "figcaption", "img", "div",
        "strong", "span", "br", "link", "header", "main",
    }  # fmt: skip
    names = {name for _, x in page.elements for name in x}
    assert not any(name.startswith("on") for name in names)
    assert NAME in page.text
    assert CLASS in page.text
    pictures = [x for tag, x in page.elements if tag == "img"]
    assert all(x["src"].startswith("data:image/jpeg;base64,") for x in pictures)
    assert [x["alt"] for x in pictures[:2]] == [
        f"Query: {NAME}",
        f"Result 1: {CLASS}, similarity 1.0000",
    ]


def test_hits_without_a_picture_are_named(page) -> None:
    missing = [x for _, x in page.elements if x.get("class") == "missing"]
    labels = [x["aria-label"] for x in missing]
    assert labels[0] == "Result 2: b, similarity 0.9939, without a picture"
    assert "Result 3: 2, similarity 0.0000, without a picture" in labels
    assert "Query: gone.png, without a picture" in labels
    # One of them by a file that is gone, and the query.
    assert "bfile cannot be read2. b" in page.text
    assert "gone.pngfile cannot be readQuery" in page.text
    assert "23. 20.0000" in page.text
    index = Index([[1, 0], [0, 1]], keys=["x7", "x8"])
    page = Page(results_page(["q.png"], index.search([[1, 0]], 1)))
    assert "key x71. key x71.0000" in page.text


def test_scores_and_verdicts_are_printed(page) -> None:
    assert "Scores of 0.9500 and more are matches." in page.text
    assert page.text.count("Queryhas a match") == 1
    assert page.text.count("Queryhas no match") == 1
    assert "2. b0.9939 matchgone.png" in page.text
    figures = [x.get("class") for tag, x in page.elements if tag == "figure"]
    assert figures == ["chosen", *4 * [None]] * 2


def sources_of(index: Index, query: str) -> list[str]:
    """Image sources on the page of a query and two hits."""
    page = Page(results_page([query], index.search([1, 0], 2)))
    return [x["src"] for tag, x in page.elements if tag == "img"]


@pytest.mark.parametrize("place", ["i", "a/b/i", "photographs/i"])
def test_index_and_its_photographs_move_together(tmp_path, place) -> None:
    """Paths used to stay those of the first machine."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "photographs").mkdir(parents=True)
    paths = [write(first / "photographs" / x, i) for i, x in enumerate("ab")]
    query = write(tmp_path / "query.png")
    index = Index(np.eye(2), {"path": paths}, keys="path")
    index.save(first / place)
    before = sources_of(index, query)
    assert len(set(before)) == 3
    shutil.copytree(first / place, tmp_path / "alone")
    # Existing files at the old paths are preferred.
    assert Index.load(tmp_path / "alone").columns["path"] == paths
    first.rename(second)
    moved = Index.load(second / place)
    there = [str(second / "photographs" / x) for x in ("a.png", "b.png")]
    assert moved.columns["path"] == there
    assert moved.keys == paths
    assert sources_of(moved, query) == before
    moved.save(tmp_path / "again")
    assert Index.load(tmp_path / "again").columns["path"] == there
    alone = Index.load(tmp_path / "alone")
    assert alone.columns["path"] == paths
    assert len(sources_of(alone, query)) == 1
    page = results_page([query], alone.search([1, 0], 2))
    assert page.count("file cannot be read") == 2


def test_paths_outside_the_folder_are_unchanged(tmp_path) -> None:
    paths = ["a.png", None, 3, "https://example.org/a.png", "/none/a.png", ""]
    Index(np.eye(6), {"path": paths}).save(tmp_path / "i")
    shutil.move(tmp_path / "i", tmp_path / "j")
    (tmp_path / "a.png").touch()
    assert Index.load(tmp_path / "j").columns["path"] == paths


def test_thumbnails_replace_images_without_a_file(tmp_path) -> None:
    data = ImageSet(np.zeros((2, 8, 8, 1), np.uint8), np.array([0, 1]))
    column = thumbnail_column(image_sets(data, "data"))
    column["thumbnail"][1] = 'https://example.org/"x.jpg'
    index = Index(np.eye(2), column)
    pictures = sources_of(index, write(tmp_path / "query.png"))
    # The page asks for nothing outside it.
    assert pictures[1:] == column["thumbnail"][:1]
