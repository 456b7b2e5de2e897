"""The page over a gallery in a database."""

import json

import pytest

from keras_dml.search import open_index
from tests.serve.page.served import (
    client,
    current,
    picture,
    small_gallery,
    small_model,
)


@pytest.mark.engines
def test_a_gallery_in_a_database(tmp_path) -> None:
    """What is found there is what is found in memory."""
    pytest.importorskip("lancedb")
    model = small_model()
    index = small_gallery(model, tmp_path / "pictures")
    uri = f"lancedb://{tmp_path}/gallery"
    index.push(uri)
    query = {"k": 5, "where": json.dumps({"new": True})}
    found = []
    for gallery in (index, open_index(uri, model)):
        with client(current(model, gallery)) as asked:
            answer = asked.post(
                "/page/search", params=query, content=picture(3)
            )
            found.append(answer.json())
            told = asked.get("/page/about").json()["gallery"]
            thumbnail = asked.get("/page/thumbnail", params={"key": "3"})
    local, remote = found
    assert [x["key"] for x in remote["hits"]] == [
        x["key"] for x in local["hits"]
    ]
    for mine, other in zip(local["parts"], remote["parts"], strict=True):
        assert [x["score"] for x in other["hits"]] == pytest.approx(
            [x["score"] for x in mine["hits"]], abs=1e-5
        )
    assert told["rows"] == 48
    kinds = {x["name"]: x["kind"] for x in told["columns"]}
    assert kinds["price"] == "number"
    assert all(x["values"] == [] for x in told["columns"])
    assert thumbnail.headers["content-type"] == "image/jpeg"
