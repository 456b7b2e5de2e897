"""Searches by picture."""

import io
import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import PIL.Image
import pytest

from tests.serve.conftest import EMPTY, HOSTILE, client_of, picture


@pytest.fixture(scope="module")
def asked(current):
    with client_of(current) as opened:
        yield opened


def search(asked, row: int = 0, **query):
    answer = asked.post("/search", params=query, content=picture(row))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_hits_match_the_index(asked, current) -> None:
    index = current.index
    answer = search(asked, 3, k=5)
    (hits,) = index.search(picture(3), 5)
    assert [x["key"] for x in answer["hits"]] == [x.key for x in hits]
    assert answer["hits"][0]["key"] == 3
    # The picture itself, which is no news.
    assert [x["is_copy"] for x in answer["hits"]] == [True] + 4 * [False]
    np.testing.assert_allclose(
        [x["score"] for x in answer["hits"]], [x.score for x in hits], atol=1e-6
    )
    assert [x["is_match"] for x in answer["hits"]] == [x.is_match for x in hits]
    assert answer["hits"][0]["row"] == {
        x: y for x, y in hits[0].row.items() if x != "thumbnail"
    }
    assert (answer["model"], answer["version"]) == ("glyphs", 1)
    assert answer["seen"].startswith("data:image/webp;base64,")


def test_false_match_rates_match_a_loop(asked, current) -> None:
    """Against a loop over all pairs."""
    index = current.index
    x, names = index.embeddings, index.labels
    pairs = [
        float(x[i] @ x[j])
        for i, j in combinations(range(48), 2)
        if names[i] != names[j]
    ]
    for hit in search(asked, 3, k=48)["hits"]:
        above = sum(pair >= hit["score"] for pair in pairs)
        expected = pytest.approx(above / len(pairs), abs=2 / len(pairs))
        assert hit["false_matches"] == expected
    about_gallery = asked.get("/page/about").json()["gallery"]
    assert about_gallery["negative_pairs"] == len(pairs)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_photograph_finds_what_the_index_finds(asked, current, kind) -> None:
    """Photographs are rotated, or in formats that only Pillow reads."""
    index = current.index
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    image = PIL.Image.fromarray(pixels).resize((700, 400))
    exif = PIL.Image.Exif()
    exif[274] = 6
    file = io.BytesIO()
    image.save(file, kind, exif=exif)
    answer = asked.post("/search?k=5", content=file.getvalue()).json()
    (hits,) = index.search(file.getvalue(), 5)
    assert [x["key"] for x in answer["hits"]] == [x.key for x in hits]
    np.testing.assert_allclose(
        [x["score"] for x in answer["hits"]], [x.score for x in hits], atol=1e-6
    )


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"price": {">=": 3, "<": 9}}, lambda row: 3 <= row["price"] < 9),
        ({"name": HOSTILE}, lambda row: row["name"] == HOSTILE),
    ],
)
def test_filters_select_rows(asked, current, where, passes) -> None:
    index = current.index
    answer = search(asked, 0, k=48, where=json.dumps(where))
    rows = [index.row(x) for x in range(48)]
    expected = {x for x, row in enumerate(rows) if passes(row)}
    assert {x["key"] for x in answer["hits"]} == expected


def test_key_can_be_left_out(asked) -> None:
    answer = search(asked, 9, k=48, exclude="9")
    assert 9 not in [x["key"] for x in answer["hits"]]
    assert len(answer["hits"]) == 47


def test_search_without_a_gallery_shows_the_picture(current) -> None:
    with client_of(replace(current, index=None)) as asked:
        about = asked.get("/page/about").json()
        answer = search(asked)
        filtered = asked.post(
            "/search", params={"where": '{"a": 1}'}, content=picture()
        )
    assert (about["gallery"], answer["hits"]) == (None, None)
    assert filtered.status_code == 400
    assert "--gallery" in filtered.json()["error"]


def test_model_without_pictures_cannot_be_searched() -> None:
    with client_of(EMPTY) as asked:
        about = asked.get("/page/about").json()
        answer = asked.post("/search", content=picture())
    assert "does not take pictures" in about["refusal"]
    assert "/v1/models/glyphs:predict" in about["refusal"]
    assert answer.status_code == 400
    assert answer.json()["error"] == about["refusal"]


BAD = [
    ({"k": "0"}, "`k` must be a whole number from 1"),
    ({"k": "1e2"}, "`k` must be"),
    ({"k": "1001"}, "`k` must be"),
    ({"where": "{"}, "`where` must be conditions"),
    ({"where": '{"price": NaN}'}, "`where` must be conditions"),
    ({"where": "[" * 20_000}, "`where` must be conditions"),
    ({"where": '{"nam": "x"}'}, "name"),
    ({"where": '{"price": "x"}'}, "a text"),
    ({"exclude": "a"}, "`exclude` must be a key"),
    ({"exclude": "[" * 20_000}, "`exclude` must be a key"),
    ({"exclude": "9" * 5_000}, "`exclude` must be a key"),
    ({"exclude": '"a"'}, "exclude"),
    ({"exclude": "9" * 400}, "exclude"),
    ({"where": '{"name": ' + "[" * 900 + "]" * 900 + "}"}, ""),
    ({"where": '{"price": ' + '{"<":' * 900 + "1" + "}" * 901}, ""),
    ({"where": '{"price": {"in": [' + "[" * 900 + "]" * 900 + "]}}"}, ""),
    ({"where": '{"price": {"<": ' + "9" * 5_000 + "}}"}, "`where` must be"),
    (b"", "0 bytes"),
    (b"hello", "image file"),
    (picture()[:60], "cannot be decoded"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image file"),
]


@pytest.mark.parametrize(("bad", "said"), BAD)
def test_bad_requests_name_the_fault(asked, bad, said) -> None:
    """The fault is in a parameter or in the file."""
    params, content = (bad, picture()) if isinstance(bad, dict) else ({}, bad)
    answer = asked.post("/search", params=params, content=content)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
