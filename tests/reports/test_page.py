import base64
import csv
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from keras_dml.evaluation import bootstrap
from keras_dml.reports import Run
from keras_dml.reports.html import inline_svg, style
from keras_dml.reports.page import explorer, headline
from keras_dml.visualization import compositor_weights, loss_curves
from tests.reports.conftest import HOSTILE, Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(run_of) -> Run:
    return Run(run_of("attentive_grouping"))


@pytest.fixture(scope="module")
def text(run, page_of) -> str:
    return page_of(run.folder).read_text()


def data_of(text: str) -> dict:
    match = re.search(r'<script type="application/json"[^>]*>(.*?)</script>',
                      text, re.S)  # fmt: skip
    return json.loads(match[1])


def test_page_is_self_contained_and_its_links_resolve(text, run) -> None:
    elements = Page(text).elements
    ids = [x["id"] for _, x in elements if "id" in x]
    assert len(ids) == len(set(ids))
    links = [
        (tag, x[name])
        for tag, x in elements
        for name in ("src", "href", "xlink:href", "action", "data")
        if x.get(name)
    ]
    assert any(link.startswith("#") for _, link in links)
    for tag, link in links:
        assert link.startswith("data:") or link[1:] in ids, (tag, link)
    assert not {tag for tag, _ in elements} & {"iframe", "object", "embed"}
    assert "@import" not in text
    assert not re.search(r"url\((?!#|[\"']?data:)", text)
    assert len(text) < 10e6
    assert (run.folder / "recipe.yaml").read_text() in Page(text).text


def test_metrics_are_printed_with_their_intervals(text, run) -> None:
    for name, interval in bootstrap(run.results).items():
        row = re.search(f'<tr><th scope="row">{name}</th>(.*?)</tr>', text)
        cells = re.findall(r"[\d.]+", re.sub("<.*?>", " ", row[1]))
        assert cells[1] == f"{interval.estimate:.4f}"
        assert cells[2:] == [f"{interval.low:.4f}", f"{interval.high:.4f}"]
        assert run.outcome.verdicts[name] in row[1]


@pytest.mark.parametrize(
    ("verdict", "kind", "words"),
    [
        ("better", "right", "Training helped: "),
        ("worse", "wrong", "Training made it worse: "),
        ("within the noise", "", "Training made no clear difference: "),
        ("too few classes to tell", "", "Too few classes to tell: "),
    ],
)
def test_headline_states_what_training_did(
    run_of, verdict, kind, words
) -> None:
    run = Run(run_of("baseline"))
    run.outcome = replace(run.outcome, verdicts={"map@r": verdict})
    before, after = run.outcome.before["map@r"], run.results["map@r"]
    count = run.results.num_classes
    numbers = f"map@r {before:.2f} → {after:.2f} on {count} unseen classes"
    assert headline(run) == (kind, words + numbers)


def test_explorer_lists_the_neighbors_under_each_embedding(text, run) -> None:
    data = data_of(text)
    assert data["embeddings"] == ["full embedding", "group 1", "group 2"]
    assert len(data["queries"]) == len(run.images)  # There are 36.
    spaces = [run.embeddings, run.parts[:, 0], run.parts[:, 1]]
    for query, lists in data["neighbors"].items():
        for x, neighbors in zip(spaces, lists, strict=True):
            wide = x.astype(np.float64)
            wide /= np.linalg.norm(wide, axis=1, keepdims=True)
            cosines = wide @ wide[int(query)]
            cosines[int(query)] = -2
            order = np.lexsort((np.arange(len(cosines)), -cosines))[:6]
            expected = [
                pytest.approx(cosines[row], abs=5.1e-4) for row in order
            ]
            assert [cosine for _, cosine, _ in neighbors] == expected
            for row, _, right in neighbors:
                same = run.images.labels[row] == run.images.labels[int(query)]
                assert bool(right) == same


def test_explorer_has_thumbnails_and_attention(text, run) -> None:
    data = data_of(text)
    for row, (name, file, source) in data["images"].items():
        label = int(run.images.labels[int(row)])
        assert name == run.images.names[label]
        assert run.images.paths[int(row)].endswith(file)
        encoded = source.removeprefix("data:image/webp;base64,")
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
            error = np.asarray(image.convert("L"), int) - np.asarray(
                run.images.read(int(row))[..., 0], int
            )
        assert np.abs(error).mean() < 16
    attention = data["attention"]
    shape = attention["height"], attention["width"]
    for row, maps in attention["maps"].items():
        for group, encoded in enumerate(maps):
            levels = np.frombuffer(base64.b64decode(encoded), np.uint8)
            weights = run.attention[int(row), ..., group]
            low, high = weights.min(), weights.max()
            expected = 255 * (weights - low) / (high - low)
            assert np.abs(levels.reshape(shape) - expected).max() < 0.51


def test_explorer_contains_every_image_it_shows(run_of) -> None:
    run = Run(run_of("baseline"))
    shown = explorer(run, num_queries=3, num_examples=2)
    assert len(shown["queries"]) == 3
    assert shown["examples"] == run.examples(2)
    examples = {row for x in shown["examples"].values() for row, _ in x}
    assert set(shown["neighbors"]) == examples | set(shown["queries"])
    neighbors = {
        row
        for lists in shown["neighbors"].values()
        for triples in lists
        for row, *_ in triples
    }
    assert set(shown["images"]) == neighbors | set(shown["neighbors"])


def test_figures_use_the_colors_of_the_page() -> None:
    figure = compositor_weights(np.array([[0.25, 0.75], [0.6, 0.4]]))
    svg = inline_svg(figure, "one", 'a "b" <c>')
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'a "b" <c>'
    assert root.get("fill") == "currentColor"
    assert "#000000" not in svg
    assert "currentColor" in svg.partition(">")[2]
    assert root.get("viewBox") and not root.get("width")
    ids = [x.get("id") for x in root.iter() if x.get("id")]
    assert all(name.startswith("one-") for name in ids)
    assert "image/png" not in svg and "image/webp" in svg
    curve = loss_curves({"epoch": np.arange(2), "loss": np.ones(2)}, ["loss"])
    assert "var(--blue)" in inline_svg(curve, "three", "")
    assert "--blue:#0072b2;" in style() and "--blue:#56b4e9;" in style()
    other = inline_svg(figure, "two", "")
    other_ids = {x.get("id") for x in ElementTree.fromstring(other).iter()}
    assert not other_ids & set(ids)


def test_numbers_can_be_downloaded(text) -> None:
    links = {
        x["download"]: x["href"]
        for tag, x in Page(text).elements
        if "download" in x
    }
    encoded = links["spectrum.csv"].removeprefix("data:text/csv;base64,")
    rows = list(csv.reader(io.StringIO(base64.b64decode(encoded).decode())))
    assert rows[0] == ["model", "number", "share"]
    assert sum(float(row[2]) for row in rows[1:]) == pytest.approx(1)


def test_hostile_names_stay_text(hostile_run, page_of) -> None:
    text = page_of(hostile_run).read_text()
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert not [x for _, x in page.elements if "onerror" in x]
    assert HOSTILE in page.text
    names = [name for name, *_ in data_of(text)["images"].values()]
    assert any("onerror" in name for name in names)
