"""`:predict`, as TensorFlow Serving answers it."""

import base64
import json
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from starlette.testclient import TestClient

from keras_dml.search import Index
from keras_dml.serve.current import Current, embedder
from keras_dml.serve.errors import RequestError
from keras_dml.serve.predict import as_array, memory_of
from tests.serve.conftest import client_of, encode
from tests.serve.test_pictures import png_of

MODEL = "/v1/models/glyphs"
PREDICT = f"{MODEL}:predict"


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def post(client: TestClient, body: Any, code: int = 200) -> Any:
    answer = client.post(PREDICT, content=json.dumps(body))
    assert answer.headers["content-type"] == "application/json"
    assert answer.status_code == code, answer.text
    return answer.json()


def rows(signature: str, *files: bytes) -> dict[str, Any]:
    return {"signature_name": signature, "instances": [b64(x) for x in files]}


@pytest.fixture(scope="module")
def embeddings(current, view, pixels) -> np.ndarray:
    """The model's embeddings of `pixels`."""
    predictions: np.ndarray = current.model.predict(
        view.apply(pixels), verbose=0
    )
    return predictions


@pytest.mark.parametrize(
    "instances",
    [
        lambda x: x.tolist(),
        lambda x: [{"images": row.tolist()} for row in x],
    ],
    ids=["values", "objects"],
)
def test_pixels_are_answered_with_embeddings(
    client, embeddings, pixels, instances
) -> None:
    text = client.post(PREDICT, json={"instances": instances(pixels)}).text
    answer = json.loads(text)
    assert answer.keys() == {"predictions"}
    np.testing.assert_allclose(answer["predictions"], embeddings, atol=1e-6)
    # No more digits than a float32 has.
    numbers = text[text.index("[[") + 2 : text.index("]")].split(",")
    assert all(len(x.lstrip("-0.").partition("e")[0]) <= 10 for x in numbers)


def test_each_file_has_its_status(client, embeddings, pixels) -> None:
    files = [encode(pixels[0]), b"text", encode(pixels[1]), encode(pixels[2])]
    files[3] = files[3][:60]
    answers = post(client, rows("encoded", *files))["predictions"]
    status = [x["status"] for x in answers]
    assert status == ["ok", "unsupported", "ok", "damaged"]
    expected = embeddings[[0, 0, 1, 0]]
    expected[[1, 3]] = 0
    answers = [x["embedding"] for x in answers]
    np.testing.assert_allclose(answers, expected, atol=1e-6)


def test_lookup_matches_the_index(client, current, pixels) -> None:
    files = [encode(x) for x in pixels]
    answers = post(client, rows("lookup", *files, b"text"))["predictions"]
    assert answers.pop() == {
        "ids": [], "labels": [], "scores": [], "above_threshold": [],
        "status": "unsupported",
    }  # fmt: skip
    hits = current.index.search(pixels, 10)
    assert [x["ids"] for x in answers] == [[h.key for h in x] for x in hits]
    assert [x["labels"] for x in answers] == [
        [h.row["name"] for h in x] for x in hits
    ]
    np.testing.assert_allclose(
        [x["scores"] for x in answers], hits.scores, atol=1e-6
    )
    assert [x["above_threshold"] for x in answers] == [
        [h.is_match for h in x] for x in hits
    ]


def test_lookup_may_have_no_labels_or_neighbors(current, pixels) -> None:
    index = Index(-np.eye(8), keys=[f"é\udcff{i}" for i in range(8)])
    plain = replace(current, index=index)
    zeros = replace(plain, embed=lambda x: np.zeros((len(x), 8), np.float32))
    with client_of(plain) as client:
        [answer] = post(client, rows("lookup", encode(pixels[0])))[
            "predictions"
        ]
    assert answer["labels"] == [None] * 8
    assert answer["ids"][0].startswith("é\\udcff")
    with client_of(zeros) as client:
        [answer] = post(client, rows("lookup", encode(pixels[0])))[
            "predictions"
        ]
    assert (answer["ids"], answer["status"]) == ([], "ok")


def test_model_of_texts_and_numbers_takes_named_inputs() -> None:
    inputs = {
        "text": keras.Input((), dtype="string", name="text"),
        "size": keras.Input((2,), name="size"),
    }
    words = keras.layers.TextVectorization(vocabulary=["a", "b"],
        output_mode="count")  # fmt: skip
    outputs = keras.layers.Concatenate()(
        [words(inputs["text"]), inputs["size"]]
    )
    model = keras.Model(inputs, outputs)
    index = Index(np.eye(5), labels=list("abcde"))
    current = Current("glyphs", model, embedder(model), index=index)
    instances = [
        {"text": "b a b", "size": [9, 3]},
        {"text": "", "size": [0, 1]},
    ]
    with client_of(current) as client:
        answers = post(client, {"instances": instances})["predictions"]
        assert answers == [[0, 1, 2, 9, 3], [0, 0, 0, 0, 1]]
        body = {"signature_name": "lookup", "instances": instances}
        answers = post(client, body)["predictions"]
        assert [x["labels"][0] for x in answers] == ["d", "e"]
        wrong = post(client, {"instances": [{"text": "b"}]}, 400)["error"]
        assert "keys ['size', 'text']" in wrong


def test_many_rows_run_in_batches(current, pixels) -> None:
    sizes: list[int] = []

    def embed(batch: Any) -> Any:
        sizes.append(len(batch))
        return current.embed(batch)

    with client_of(replace(current, embed=embed), max_batch=4) as client:
        body = {"instances": np.concatenate([pixels, pixels]).tolist()}
        answers = post(client, body)["predictions"]
    assert sizes == [4, 4, 2]
    np.testing.assert_allclose(answers[:5], answers[5:], atol=1e-6)


def test_status_has_the_published_form(client) -> None:
    assert client.get(MODEL).json() == {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }


@pytest.mark.parametrize(
    ("method", "address", "code", "error"),
    [
        ("GET", "/v1/models/other", 404, "Received: 'other'"),
        ("POST", "/v1/models/half:predict", 404, "'glyphs' is served"),
        ("GET", PREDICT, 404, "Received: 'glyphs:predict'"),
        ("POST", MODEL, 405, "Method Not Allowed"),
        ("POST", f"{MODEL}:classify", 405, ""),
        ("GET", "/v1/models", 404, "Not Found"),
    ],
)
def test_other_addresses_give_errors(client, method, address, code, error):
    answer = client.request(method, address)
    assert answer.status_code == code
    assert error in answer.json()["error"]


NESTED = [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"\xff", "must be JSON"),
        (b"[" * 60_000, "must be JSON"),
        (b'{"instances": ' + b"9" * 5000 + b"}", "must be JSON"),
        (b'{"instances": [[[[1e400]]]]}', "must be JSON"),
        (b'{"instances": [[[[NaN]]]]}', "must be JSON"),
        (b'{"instances": [[[[' + b"9" * 200 + b"]]]]}", "type float32"),
        ([], "`body` must be an object. Received: []."),
        ({}, "`instances` must be a list of one item or more"),
        ({"inputs": [1]}, "`instances` must be a list of one item or more"),
        ({"instances": []}, "one item or more. Received: []."),
        ({"instances": [1], "signature_name": 3}, "must be one of ['serving_def"
         "ault', 'encoded', 'lookup']. Received: 3."),
        ({"instances": [1], "signature_name": ["x"]}, "must be one of ["),
        ({"instances": [[[["a"]]]]}, "`images` must hold values of type "
         "float32. Received: 'a'."),
        ({"instances": [[[[True]]]]}, "type float32. Received: True."),
        ({"instances": [[[[16777217]]]]}, "Received: 16777217."),
        ({"instances": [[[[1e39]]]]}, "Received: 1e+39."),
        ({"instances": [[[[0]] * 16] * 16, [[[0]] * 15] * 16]}, "lists of one "
         "length at each level"),
        ({"instances": [[[[0, 1], [2]]]]}, "lists of one length at each level"),
        ({"instances": [1.5]}, "must have the shape (None, None, None, 1)"),
        ({"instances": [[[[0]] * 51]]}, "more than 50 times the pixels of the "
         "other. Received: 51 × 1 pixels. Crop it."),
        ({"instances": [[[[0]]] * 51]}, "Received: 1 × 51 pixels"),
        ({"instances": [[[]]]}, ""),
        ({"instances": [{"x": 1}]}, "with the keys ['images']. Received: {'x': "
         "1}."),
        ({"instances": [{"images": 1}, 2]}, "must be a list of objects"),
        (rows("encoded") | {"instances": [{"b64": "%%"}]}, "bytes in base64. "
         "Received: {'b64': '%%'}."),
        (rows("encoded") | {"instances": [b64(b"x"), "iVBOR"]}, '`images` must '
         'hold image files as objects {"b64": "…"}. Received: \'iVBOR\'.'),
        (rows("encoded") | {"instances": [3]}, "must hold image files"),
        (rows("encoded", png_of(1, 51)), "Received: 1 × 51 pixels"),
        (b'{"signature_name": ' + b"[" * 40_000 + b"}", ""),
        (b'{"instances": ' + b"[" * 900 + b"1" + b"]" * 900 + b"}", ""),
        *[(b'{"signature_name": "encoded", "instances": ' + x * 1000 + b"1"
           + y * 1000 + b"}", "") for x, y in NESTED],
    ],
)  # fmt: skip
def test_wrong_requests_name_the_fault(client, body, error) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(PREDICT, content=content)
    assert answer.status_code == 400
    assert answer.json().keys() == {"error"}
    assert error in answer.json()["error"]
    assert len(answer.json()["error"]) < 1000


@pytest.mark.parametrize("side", [200, 60_000])
def test_too_large_picture_is_not_decoded(client, side) -> None:
    error = post(client, rows("encoded", png_of(side, side)), 413)["error"]
    assert "must not have more than 10,000 pixels" in error


def test_json_counts_by_its_memory(client) -> None:
    row = b"[" + b",".join([b"[0]"] * 40_000) + b"]"
    assert memory_of(row) > 100 * 40_000
    answer = client.post(PREDICT, content=b'{"instances": [[' + row + b"]]}")
    assert answer.status_code == 413
    assert "10,000 pixels" in answer.json()["error"]


@pytest.mark.parametrize(
    ("dtype", "value", "is_exact"),
    [
        ("float32", 2**24, True),
        ("float32", -(2**53) - 1, False),
        ("float64", 1e39, True),
        ("float64", 2**53 + 1, False),
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint64", 2**64 - 1, True),
        ("uint64", -1, False),
        ("int64", 2**63, False),
        ("int32", 1.0, False),
        ("bool", True, True),
        ("bool", 1, False),
    ],
)
def test_type_must_hold_all_numbers(dtype, value, is_exact) -> None:
    spec = tf.TensorSpec((None,), dtype)
    if is_exact:
        array = as_array([value], spec, "x")
        assert (array.dtype, array.tolist()) == (dtype, [value])
        return
    for values in ([value], [0, value]):
        with pytest.raises(RequestError, match=f"`x` must .* type {dtype}"):
            as_array(values, spec, "x")
