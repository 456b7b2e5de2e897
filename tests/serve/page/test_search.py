"""What is found for a picture."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from urllib.parse import quote

import numpy as np
import PIL.Image
import pytest

from keras_dml.search import Index
from keras_dml.serve.current import Current, scores_of_negatives
from keras_dml.serve.page.search import rate_of_false_matches
from keras_dml.visualization import attention_maps, head_outputs
from tests.conftest import blobs
from tests.serve.page.served import (
    HOSTILE,
    client,
    columns,
    current,
    picture,
    small_gallery,
    small_model,
)
from tests.serve.test_limits import png_of


@pytest.fixture(scope="module")
def index(model):
    return small_gallery(model)


@pytest.fixture(scope="module")
def asked(model, index):
    with client(current(model, index)) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain(model):
    """A client of a model without a head, which is faster."""
    encoder = model.encoder
    index = Index.build(encoder, blobs(), columns())
    with client(current(encoder, index)) as opened:
        yield opened


def search(asked, row: int = 0, **query):
    answer = asked.post("/page/search", params=query, content=picture(row))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_hits_are_those_of_the_index(asked, index) -> None:
    found = search(asked, 3, k=5)
    (hits,) = index.search(picture(3), 5)
    assert [x["key"] for x in found["hits"]] == [x.key for x in hits]
    assert found["hits"][0]["key"] == 3
    # The picture itself, which is no news.
    assert [x["is_copy"] for x in found["hits"]] == [True] + 4 * [False]
    np.testing.assert_allclose(
        [x["score"] for x in found["hits"]], [x.score for x in hits], atol=1e-6
    )
    assert [x["is_match"] for x in found["hits"]] == [x.is_match for x in hits]
    assert found["hits"][0]["row"] == {
        x: y for x, y in hits[0].row.items() if x != "thumbnail"
    }
    assert found["model"] == {"name": "small", "version": 1}
    assert found["seen"].startswith("data:image/webp;base64,")


def test_hits_have_their_rate_of_false_matches(asked, index) -> None:
    """Against a loop over all pairs; of no classes there is no rate."""
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
    told = asked.get("/page/about").json()["gallery"]
    assert told["negative_pairs"] == len(pairs)


def test_false_matches_are_of_some_pairs_with_a_seed(index) -> None:
    every, some = scores_of_negatives(index), scores_of_negatives(index, 100)
    assert len(some) == 100 < len(every)
    assert set(some) <= set(every)
    assert (some == scores_of_negatives(index, 100)).all()
    assert [rate_of_false_matches(np.array([0.1, 0.5, 0.5, 0.9]), score)
            for score in (0, 0.5, 0.6, 1)] == [1, 0.75, 0.25, 0]  # fmt: skip


@pytest.mark.parametrize("labels", [None, [1, 1, 1], [[1], [1, 2], [2]]])
def test_false_matches_need_classes(labels) -> None:
    index = Index(np.eye(3), labels and {"label": labels})
    assert scores_of_negatives(index) is None


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_a_photograph_finds_what_the_index_finds_for_its_file(
    asked, index, kind
) -> None:
    """Also lying on its side, and in formats that only Pillow reads."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    image = PIL.Image.fromarray(pixels).resize((700, 400))
    exif = PIL.Image.Exif()
    exif[274] = 6
    file = io.BytesIO()
    image.save(file, kind, exif=exif)
    answer = asked.post("/page/search?k=5", content=file.getvalue()).json()
    (hits,) = index.search(file.getvalue(), 5)
    assert [x["key"] for x in answer["hits"]] == [x.key for x in hits]
    np.testing.assert_allclose(
        [x["score"] for x in answer["hits"]], [x.score for x in hits], atol=1e-6
    )


@pytest.fixture(scope="module")
def parts(model):
    """Sub-embeddings of the gallery, (48, 2, 4)."""
    return head_outputs(model, blobs(), ["parts"])["parts"]


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_parts_find_what_sub_embeddings_find(
    model, index, parts, metric
) -> None:
    """By sub-embeddings of the whole gallery, each compared by itself."""
    other = Index(index.embeddings, columns(), metric=metric)
    with client(current(model, other)) as asked:
        found = search(asked, 5, k=48)
    assert [x["name"] for x in found["parts"]] == ["learner 1", "learner 2"]
    for number, part in enumerate(found["parts"]):
        cosines = parts[:, number] @ parts[5, number]
        scores = {x["key"]: x["score"] for x in part["hits"]}
        assert len(scores) == 48
        np.testing.assert_allclose(
            [scores[row] for row in range(48)], cosines, atol=2e-4
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "has_maps", "are_cosines"),
    [("bier", False, True), ("dcml", False, False)],
)
def test_other_methods(method, has_maps, are_cosines) -> None:
    model = small_model(method)
    outputs = head_outputs(model, blobs())
    with client(current(model, Index(outputs["embedding"]))) as asked:
        told = asked.get("/page/about").json()
        found = search(asked, 7, k=48)
    assert told["parts_are_cosines"] is are_cosines
    assert told["has_attention"] is has_maps
    assert (found["attention"] is not None) is has_maps
    for number, part in enumerate(found["parts"]):
        own = outputs["parts"][:, number]
        # Those of bier are of 3 and 4 columns; those of dcml differ in length.
        of_whole = own if are_cosines else outputs["embedding"][:, 4 * number :]
        expected = of_whole[:, :4] @ own[7]
        scores = {hit["key"]: hit["score"] for hit in part["hits"]}
        assert len(scores) == 48
        np.testing.assert_allclose(
            [scores[row] for row in range(48)], expected, atol=2e-4
        )


def test_maps_are_those_of_attention_maps(asked, model) -> None:
    found = search(asked, 4)["attention"]
    maps = attention_maps(model, blobs().select(np.array([4])))[0]
    shape = found["height"], found["width"]
    assert shape == maps.shape[:2]
    assert len(found["maps"]) == maps.shape[2] == 2
    for number, encoded in enumerate(found["maps"]):
        levels = np.frombuffer(base64.b64decode(encoded), np.uint8)
        one = maps[..., number]
        scaled = 255 * (one - one.min()) / (one.max() - one.min())
        np.testing.assert_allclose(levels.reshape(shape), scaled, atol=0.6)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"price": {">=": 3, "<": 9}}, lambda row: 3 <= row["price"] < 9),
        ({"name": HOSTILE}, lambda row: row["name"] == HOSTILE),
    ],
)
def test_filters(asked, index, where, passes) -> None:
    found = search(asked, 0, k=48, where=json.dumps(where))
    rows = [index.row(x) for x in range(48)]
    expected = {x for x, row in enumerate(rows) if passes(row)}
    assert {x["key"] for x in found["hits"]} == expected
    assert {x["key"] for x in found["parts"][0]["hits"]} == expected


def test_a_key_is_left_out(asked) -> None:
    found = search(asked, 9, k=48, exclude="9")
    assert 9 not in [x["key"] for x in found["hits"]]
    assert len(found["hits"]) == 47


@pytest.mark.parametrize(
    ("query", "said"),
    [
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
    ],
)
def test_bad_requests_say_what_is_wrong(plain, query, said) -> None:
    answer = plain.post("/page/search", params=query, content=picture())
    assert answer.status_code == 400
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"", 400, "0 bytes"),
        (b"hello", 400, "image file"),
        (picture()[:60], 400, "cannot be decoded"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400, "image file"),
    ],
)
def test_files_that_are_no_pictures(plain, content, status, said) -> None:
    answer = plain.post("/page/search", content=content)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_a_picture_of_too_many_pixels_is_not_decoded(model) -> None:
    with client(current(model), max_pixels=255) as asked:
        answer = asked.post("/page/search", content=picture())
    assert answer.status_code == 413
    assert "256" in answer.json()["error"]


def test_a_picture_that_would_be_resized_to_gigabytes_is_refused(plain) -> None:
    answer = plain.post("/page/search", content=png_of(1, 70_000))
    assert answer.status_code == 413
    assert "so long and thin" in answer.json()["error"]


def test_without_a_gallery_there_are_the_maps(model) -> None:
    with client(current(model)) as asked:
        told = asked.get("/page/about").json()
        found = search(asked)
        filtered = asked.post(
            "/page/search", params={"where": '{"a": 1}'}, content=picture()
        )
    assert told["gallery"] is None
    assert found["hits"] is None
    assert len(found["attention"]["maps"]) == 2
    assert filtered.status_code == 400
    assert "--gallery" in filtered.json()["error"]


@pytest.mark.parametrize(
    ("served", "said"),
    [(None, "Only an export"), ("any", "does not take pictures")],
)
def test_what_cannot_be_asked_for_a_picture(served, said) -> None:
    now = Current("other", 1, served, None, None, {})
    with client(now) as asked:
        told = asked.get("/page/about").json()
        answer = asked.post("/page/search", content=picture())
    assert said in told["refusal"]
    assert answer.status_code == 400
    assert answer.json()["error"] == told["refusal"]
    assert "/v1/models/other:predict" in told["refusal"]


def test_a_model_without_a_head(plain) -> None:
    """Any Keras model can be served, as that of an exported encoder."""
    found = search(plain, 2)
    assert found["hits"][0]["key"] == 2
    assert (found["parts"], found["attention"]) == ([], None)


def test_twenty_at_once_get_each_their_own_answer(plain) -> None:
    """Also one among them that cannot be searched for."""

    def nearest(row: int):
        where = quote('{"nowhere": 1}') if row == 7 else ""
        answer = plain.post(
            f"/page/search?k=1&where={where}", content=picture(row)
        )
        if answer.status_code == 400:
            return None
        return answer.json()["hits"][0]["key"]

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(nearest, range(20)))
    assert found == [None if row == 7 else row for row in range(20)]
