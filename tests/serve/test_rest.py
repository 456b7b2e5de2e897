"""REST, as TensorFlow Serving answers it."""

import base64
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from starlette.testclient import TestClient

from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.requests import tensor
from tests.export.serving import file_of
from tests.serve.test_limits import png_of

MODEL = "/v1/models/glyphs"


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def post(client: TestClient, body: Any, code: int = 200, at: str = "") -> Any:
    answer = client.post(at or f"{MODEL}:predict", content=json.dumps(body))
    assert answer.headers["content-type"] == "application/json"
    assert answer.status_code == code, answer.text
    return answer.json()


def expected(current: Current, signature: str, **inputs: Any) -> dict[str, Any]:
    """What TensorFlow Serving runs, by itself."""
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    outputs = current.loaded.signatures[signature](**tensors)
    return {k: v.numpy() for k, v in outputs.items()}


@pytest.mark.parametrize(
    "inputs",
    [
        lambda x: {"instances": x.tolist()},
        lambda x: {"instances": [{"images": row.tolist()} for row in x]},
        lambda x: {"inputs": x.tolist()},
        lambda x: {"inputs": {"images": x.tolist()}},
    ],
    ids=["rows", "named rows", "columns", "named columns"],
)
def test_one_output_has_no_name(client, current, pixels, inputs) -> None:
    body = inputs(pixels)
    answer = post(client, body)
    key = "predictions" if "instances" in body else "outputs"
    wanted = expected(current, "serving_default", images=np.float32(pixels))
    assert answer.keys() == {key}
    np.testing.assert_array_equal(np.float32(answer[key]), wanted["embedding"])


def test_floats_have_no_more_digits_than_they_are_exact_to(client, pixels):
    rows = {"instances": pixels[:1].tolist()}
    text = client.post(f"{MODEL}:predict", json=rows).text
    numbers = text[text.index("[[") + 2 : text.index("]]")].split(",")
    assert all(len(x.lstrip("-0.").partition("e")[0]) <= 10 for x in numbers)


@pytest.mark.slow
def test_files_get_statuses_each(client, current, pixels) -> None:
    files = [file_of(pixels[0]), b"text", file_of(pixels[1], "JPEG")]
    rows = {"signature_name": "encoded", "instances": [b64(x) for x in files]}
    wanted = expected(current, "encoded", images=files)
    found = post(client, rows)["predictions"]
    assert [x["status"] for x in found] == ["ok", "unsupported", "ok"]
    np.testing.assert_array_equal(
        np.float32([x["embedding"] for x in found]), wanted["embedding"]
    )
    columns = rows | {"inputs": rows.pop("instances")}
    found = post(client, columns)["outputs"]
    assert found.keys() == {"embedding", "status"}
    assert found["status"] == ["ok", "unsupported", "ok"]


def test_a_lookup_finds_what_the_index_finds(client, current, pixels) -> None:
    files = [file_of(x) for x in pixels]
    rows = {"signature_name": "lookup", "instances": [b64(x) for x in files]}
    found = post(client, rows)["predictions"]
    hits = current.index.search(pixels, 10)
    assert [x["ids"] for x in found] == [[h.key for h in x] for x in hits]
    scores = [[h.score for h in x] for x in hits]
    np.testing.assert_allclose([x["scores"] for x in found], scores, atol=1e-5)
    assert {type(x) for x in found[0]["above_threshold"]} == {bool}
    own_k = [{"images": b64(x), "k": 2} for x in files]
    answer = post(client, {"signature_name": "lookup_k", "instances": own_k})
    assert [x["ids"] for x in answer["predictions"]] == [
        x["ids"][:2] for x in found
    ]


def test_the_metadata_has_the_published_form(client) -> None:
    found = client.get(f"{MODEL}/metadata").json()
    assert found["model_spec"] == {
        "name": "glyphs",
        "signature_name": "",
        "version": "1",
    }
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert {"serving_default", "encoded", "lookup"} < signatures.keys()
    signature = signatures["encoded"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    tensor = dict(signature["inputs"]["images"])
    assert tensor.pop("name").endswith(":0")
    assert tensor == {
        "dtype": "DT_STRING",
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}],
            "unknown_rank": False,
        },
    }
    assert client.get(f"{MODEL}/versions/1/metadata").json() == found


@pytest.mark.parametrize(
    ("method", "address", "code", "error"),
    [
        ("GET", "/v1/models/other", 404, "version 1 of 'other'"),
        ("GET", f"{MODEL}/versions/7", 404, "version 7 of 'glyphs'"),
        ("GET", f"{MODEL}/versions/7/metadata", 404, "version 7 of"),
        ("GET", "/v1/models/other/metadata", 404, "of 'other'"),
        ("POST", "/v1/models/half:predict", 404, "of 'half'"),
        ("POST", f"{MODEL}/versions/2:predict", 404, "version 2 of"),
        ("POST", f"{MODEL}/versions/{10**30}:predict", 400, "Received: POST"),
        ("POST", f"{MODEL}/labels/canary:predict", 400, "Received: POST"),
        ("GET", "/v1/models", 400, "Received: GET /v1/models."),
        ("GET", f"{MODEL}:predict", 400, f"Received: GET {MODEL}:predict."),
        ("POST", MODEL, 400, f"Received: POST {MODEL}."),
        ("PUT", f"{MODEL}:predict", 400, f"Received: PUT {MODEL}:predict."),
        ("POST", f"{MODEL}:explain", 400, f"Received: POST {MODEL}:explain."),
        ("POST", f"{MODEL}:classify", 400, "Received: POST"),
    ],
)  # fmt: skip
def test_errors_have_the_statuses_of_tensorflow_serving(
    client, method, address, code, error
) -> None:
    body = {"instances": [0], "examples": [{"x": 1}]}
    given = {"json": body} if method == "POST" else {}
    answer = client.request(method, address, **given)
    assert answer.status_code == code
    assert error in answer.json()["error"]


NESTED = [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")]
RAGGED = [[[[0]] * 16] * 16, [[[0]] * 15] * 16]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"\xff", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"instances": ' + b"9" * 5000 + b"}", "must be JSON"),
        (b'{"instances": [[[[' + b"9" * 200 + b"]]]]}", "type float32"),
        ([], "`body` must be an object. Received: []."),
        ({}, "`body` must have either `instances` or `inputs`."),
        ({"instances": 1, "inputs": 1}, "must have either"),
        ({"instances": []}, "one item or more. Received: []."),
        ({"instances": [1], "signature_name": 3}, "`signature_name` must be a "
         "string. Received: 3."),
        ({"instances": [1], "signature_name": "x"}, "`signature_name` must be "
         "one of ["),
        ({"instances": [[[["a"]]]]}, "`images` must hold values of type "
         "float32. Received: 'a'."),
        ({"instances": [[[[True]]]]}, "type float32. Received: True."),
        ({"inputs": [[[[1], [0], [False]]]]}, "Received: False."),
        ({"signature_name": "lookup_k", "inputs": {"images": [b64(b"x")] * 2,
          "k": [1, True]}}, "`k` must hold values of type int32"),
        ({"instances": [[[[16777217]]]]}, "Received: 16777217."),
        ({"instances": [[[[1e39]]]]}, "Received: 1e+39."),
        ({"instances": RAGGED}, "lists of one length at each level"),
        ({"instances": [[1, 2], [3]]}, "lists of one length at each level"),
        ({"instances": [1.5]}, "must have the shape (None, None, None, 1)"),
        ({"inputs": {"pixels": [1]}}, "`inputs` must be an object with the "
         "keys ['images']. Received: {'pixels': [1]}."),
        ({"instances": [{"x": 1}]}, "with the keys ['images']. Received: {'x': "
         "1}."),
        ({"instances": [{"images": 1}, 2]}, "must be a list of objects"),
        ({"signature_name": "lookup_k", "instances": ["x"]}, "`instances` must "
         "name the inputs ['images', 'k']"),
        ({"signature_name": "encoded", "instances": [{"b64": "%%"}]}, "bytes "
         "in base64. Received: {'b64': '%%'}."),
        ({"signature_name": "encoded", "instances": [3]}, "must hold strings, "
         'or objects {"b64": "…"} with bytes in base64. Received: 3.'),
        (b'{"signature_name": "encoded", "instances": ["\\ud800"]}', ""),
        ({"signature_name": "encoded", "instances": [b64(b"x"), "iVBOR"]},
         '`images` must hold image files as objects {"b64": "…"}. Received: '
         "'iVBOR'."),
        ({"signature_name": "lookup_k", "instances": [{"images": "x", "k": 1}]},
         "as objects {"),
        (b'{"signature_name": "encoded", "instances": [' + b"9" * 400 + b"]}",
         "must hold strings"),
        (b'{"signature_name": ' + b"[" * 40_000 + b"}", ""),
        (b'{"instances": ' + b"[" * 900 + b"1" + b"]" * 900 + b"}", ""),
        (b'{"x": ' + b"[" * 900 + b"]" * 900 + b', "signature_name": 3}', ""),
        *[(b'{"signature_name": "encoded", "inputs": ' + x * 1000 + b"1"
           + y * 1000 + b"}", "") for x, y in NESTED],
        (b'{"instances": [[[[NaN, 1], [2]]]]}', "one length at each level"),
    ],
)  # fmt: skip
def test_wrong_requests_say_what_is_wrong(client, body, error) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(f"{MODEL}:predict", content=content)
    assert answer.status_code == 400
    assert answer.json().keys() == {"error"}
    assert error in answer.json()["error"]
    assert len(answer.json()["error"]) < 1000


@pytest.mark.parametrize("side", [200, 60_000])
def test_a_bomb_is_refused_before_it_is_decoded(client, side) -> None:
    bomb = {"signature_name": "encoded", "instances": [b64(png_of(side, side))]}
    error = post(client, bomb, 413)["error"]
    assert "must not have more than 10,000 pixels" in error


def test_no_examples_have_an_answer_of_no_rows(client) -> None:
    answer = post(client, {"signature_name": "encoded", "inputs": []})
    assert answer == {"outputs": {"embedding": [], "status": []}}


# Arrays in JSON hold what their type does.


@pytest.mark.parametrize(
    ("dtype", "value", "is_exact"),
    [
        ("float32", 2**24, True),
        ("float32", 2**24 + 1, False),
        ("float32", -(2**53) - 1, False),
        ("float32", 1e39, False),
        ("float64", 1e39, True),
        ("float64", 2**53 + 1, False),
        ("float32", 10**400, False),
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint64", 2**64 - 1, True),
        ("uint64", -1, False),
        ("int64", 2**63, False),
        ("int32", 1.0, False),
        ("float32", True, False),
        ("bool", True, True),
        ("bool", 1, False),
    ],
)
def test_a_type_must_hold_all_numbers(dtype, value, is_exact) -> None:
    spec = tf.TensorSpec((None,), dtype)
    if is_exact:
        found = tensor([value], spec, "x")
        assert (found.dtype, found.tolist()) == (dtype, [value])
        return
    for values in ([value], [0, value]):
        with pytest.raises(RequestError, match=f"`x` must .* type {dtype}"):
            tensor(values, spec, "x")


@pytest.mark.parametrize("dtype", ["bool", "int32", "complex64", "bfloat16"])
def test_no_numbers_are_of_any_type(dtype) -> None:
    found = tensor([[], []], tf.TensorSpec((None, None), dtype), "x")
    assert (found.dtype, found.shape) == (dtype, (2, 0))
