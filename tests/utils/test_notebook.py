"""HTML representations in notebooks: small, escaped, without errors."""

import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from keras_dml.callbacks.clustering import Division
from keras_dml.data import ImageSet
from keras_dml.evaluation import bootstrap, evaluate_embeddings
from keras_dml.search import Index
from keras_dml.utils.notebook import MOST_PICTURES

HOSTILE = "<script>alert('x')</script>\"&\udcff"


class Read(HTMLParser):
    """Tags and text of what a browser would show; nothing may stay open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []
        assert "script" not in self.tags
        html.encode()

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "src" or value.startswith("data:image/")
            assert name != "style" or not re.search("color|background", value)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.text += data


def test_images_are_a_few_thumbnails_with_their_classes() -> None:
    images = ImageSet(
        np.zeros((100, 20, 10, 3), np.uint8), np.arange(100) // 50,
        names={0: HOSTILE, 1: "owl"},
    )  # fmt: skip
    html = images._repr_html_()
    read = Read(html)
    assert read.tags.count("img") == MOST_PICTURES
    assert "alert('x')" in read.text
    assert "owl" in read.text
    assert repr(images) in read.text
    assert len(html) < 50_000
    few = Read(images.select([3, 4])._repr_html_())
    assert few.tags.count("img") == 2


def test_a_file_that_is_gone_has_no_picture(tmp_path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
    images = ImageSet(paths, [0, 1])
    paths[0].unlink()
    read = Read(images._repr_html_())
    assert read.tags.count("img") == 1
    assert "no picture" in read.text


def test_hits_show_scores_keys_and_matches(tmp_path) -> None:
    Image.new("RGB", (300, 200)).save(tmp_path / "a.png")
    columns = {
        "path": [str(tmp_path / "a.png"), str(tmp_path / "gone.png")],
        "name": [HOSTILE, "owl"],
    }
    index = Index(np.eye(2), columns, keys=["p", "q"])
    hits = index.search([[1, 0.5]] * 9, 2, threshold=0.5)
    html = hits._repr_html_()
    read = Read(html)
    assert read.tags.count("img") == 5
    assert "0.8944, p" in read.text
    assert "no match" in read.text
    assert "Query 4 of 9" in read.text
    assert "Query 5" not in read.text
    Read(index.search(np.zeros((0, 2)), 1)._repr_html_())


def test_results_are_a_table_with_intervals() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    results = evaluate_embeddings(
        x, np.arange(30) % 5, metrics=("map@r", "nmi")
    )
    read = Read(results._repr_html_())
    interval = bootstrap(results)["map@r"]
    assert f"{results['map@r']:.4f}" in read.text
    assert f"{interval.low:.4f} to {interval.high:.4f}" in read.text
    assert "30 queries, 5 classes" in read.text
    assert read.tags.count("tr") == 3


def test_a_division_is_a_table_of_its_clusters() -> None:
    division = Division(2, (1200, 3, 5), 0.5, (1,), 1.0, 2.0)
    read = Read(division._repr_html_())
    assert "1,200" in read.text
    assert "merged" in read.text
    assert str(division) in read.text
